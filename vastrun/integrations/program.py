"""Program: the start and the end of a user's program, and its metrics. Standard library only."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, SupportsFloat

from vastrun.contract.resume_command import RESUME
from vastrun.contract.scores import common_loss_name

STOPPED = 143
"""Exit code of a program that was asked to stop: 128 + SIGTERM."""


def resume_path() -> str | None:
    """Return the path of the checkpoint to continue from; None on a fresh start.

    The job names its checkpoints in `checkpoints:`; the newest intact one is put back before each start.
    """
    return os.environ.get(RESUME) or None


def leave(exit_code: int = 0) -> NoReturn:
    """End this process with the exit code, without Python's own end: threads of gloo may abort that.

    A W&B run that is still open ends with the same exit code. Output is flushed; functions that were
    registered with `atexit` do not run.
    """
    wandb = sys.modules.get("wandb")
    try:
        if wandb is not None and getattr(wandb, "run", None) is not None:
            wandb.finish(exit_code=exit_code)
    finally:  # whatever W&B raises, the training has ended, and its exit code is known
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(exit_code)


_RESERVED = frozenset({"", "step", "at"})


def numbers_of(logged: Mapping[str, Any], exclude: Iterable[str] = ()) -> dict[str, SupportsFloat]:
    """Return the numbers of what was logged, by name, without those of `exclude`.

    A loss by a usual name (`train_loss`, `eval_loss`) is also returned as `loss` or `validation_loss`.
    """
    left_out = _RESERVED.union(exclude)
    found = {name: value for name, value in logged.items() if name not in left_out and _is_number(value)}
    for name in tuple(found):
        common = common_loss_name(name)
        if common is not None:
            found.setdefault(common, found[name])
    return found


def _is_number(value: Any) -> bool:
    """Tell whether it is a number, or a tensor or array of one number."""
    if isinstance(value, (int, float)):
        return not isinstance(value, bool)
    size = getattr(value, "numel", None)
    count = size() if callable(size) else getattr(value, "size", None)
    return count == 1 and hasattr(value, "item")
