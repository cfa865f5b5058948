"""Gloo: groups on the thread of another one.

A group of gloo has a thread of its own, which looks for messages a hundred times a second also where none
come: two groups beside that of the training interrupted each rank on a CPU some twenty times a step.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as torch_dist

_NAME = "gloo_beside"
"""Of the backend, as torch knows it."""


def new_group_beside(group: torch_dist.ProcessGroup, timeout: timedelta) -> torch_dist.ProcessGroup:
    """Make a group of gloo, of all ranks, whose messages the thread of `group`, a group of gloo, sends.

    What is sent in one never mixes with the other's. Where torch shares no thread, the new group has its own.
    """
    try:
        options = torch_dist.ProcessGroupGloo._Options()
        options._devices = group._get_backend(torch.device("cpu")).options._devices
    except (AttributeError, RuntimeError):
        return torch_dist.new_group(backend="gloo", timeout=timeout)
    options._threads = 1
    if not hasattr(torch_dist.Backend, _NAME.upper()):
        torch_dist.Backend.register_backend(_NAME, _make, extended_api=True, devices=["cpu"])
    return torch_dist.new_group(backend=_NAME, timeout=timeout, pg_options=options)


def _make(group: Any, options: Any) -> torch_dist.ProcessGroupGloo:
    options._timeout = group.timeout
    return torch_dist.ProcessGroupGloo(group.store, group.group_rank, group.group_size, options)
