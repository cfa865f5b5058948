"""GPUs: which of them answer now. Standard library only."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

_QUERY = ("nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader")
_WITHIN_S = 30.0


def healthy_gpus(env: Mapping[str, str] = os.environ) -> tuple[str, ...] | None:
    """The UUIDs of the GPUs that the ranks may use and that answer; None when that cannot be told."""
    try:
        done = subprocess.run(
            _QUERY, env=dict(env), capture_output=True, text=True, timeout=_WITHIN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # One that has fallen off the bus is left out, or is a line of another form.
    answers = [line.split(", ") for line in done.stdout.splitlines()]
    gpus = {index: uuid for index, uuid in (a for a in answers if len(a) == 2) if uuid.startswith("GPU-")}
    if done.returncode and not gpus:
        return None
    visible = env.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return tuple(gpus.values())
    asked = [name.strip() for name in visible.split(",")]
    return tuple(uuid for index, uuid in gpus.items() if index in asked or uuid in asked)
