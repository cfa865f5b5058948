"""Program: the start and the end of a user's program. Standard library only."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from vastrun.contract.resume_command import RESUME

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
