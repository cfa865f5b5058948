"""Program: what a program of any framework needs to report, to stop, to resume and to end.

Imports nothing but the standard library; of torch it uses what the program has imported.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NoReturn, SupportsFloat

from vastrun.contract.program import RESUME
from vastrun.contract.reports import common_loss_name

STOPPED = 143
"""Exit code of a program that was asked to stop: 128 + SIGTERM."""
_INTERVAL_S = 1.0
"""Seconds between two questions: a stop leaves 30 s to save, and each question waits for the GPU."""
_MAX_STEPS = 100
"""Maximum steps between two questions: the next steps may be slower than the last ones."""
_GROWTH = 4
"""Maximum growth of the steps between two questions: the first steps may be faster than later ones."""


class StopAgreement:
    """Lets all ranks stop after the same step when vastrun asks the program to stop.

    SIGTERM reaches each rank at another moment, so that one rank could leave a step which the others still
    compute. The ranks ask each other in a collective, about once a second. Notes SIGTERM from its
    construction on, in the place of the handler that was set:

        stop = StopAgreement()
        for step in range(first, last):
            train_step()
            if stop.should_stop():
                save()
                break

    Construct it in the main thread; in another one Python allows no handler, and SIGTERM ends the program.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: monotonic seconds."""
        self.stopped = False
        """True once all ranks agreed to stop."""
        self._clock = clock
        self._is_asked = False
        self._steps = 0
        """Steps since the last question."""
        self._interval = 1
        """Steps between two questions, the same on all ranks."""
        self._asked_at: float | None = None
        with suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGTERM, self._note)

    def should_stop(self) -> bool:
        """Tell whether all ranks stop after this step. Every rank calls it once after each step."""
        if self.stopped:
            return True
        self._steps += 1
        if self._steps < self._interval:
            return False
        step_s = math.inf if self._asked_at is None else (self._clock() - self._asked_at) / self._steps
        is_asked, step_s = _max_over_ranks(float(self._is_asked), step_s)
        fitting = _MAX_STEPS if step_s * _MAX_STEPS <= _INTERVAL_S else int(_INTERVAL_S / step_s)
        self._interval = max(1, min(fitting, _GROWTH * self._interval))
        self._steps, self._asked_at = 0, self._clock()
        self.stopped = bool(is_asked)
        return self.stopped

    def _note(self, *_: object) -> None:
        self._is_asked = True


def _max_over_ranks(*values: float) -> tuple[float, ...]:
    """Return the maximum of each value over the ranks; these values where there is one rank."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return values
    if distributed.get_world_size() == 1:
        return values
    import torch

    # Older versions of torch have no configuration by device, but one backend.
    backend = getattr(distributed, "get_backend_config", distributed.get_backend)()
    on_cpu = any(name in backend for name in ("cpu:", "gloo", "mpi"))
    device = torch.device("cpu") if on_cpu else torch.device("cuda", torch.cuda.current_device())
    tensor = torch.tensor(values, dtype=torch.float32, device=device)
    distributed.all_reduce(tensor, op=distributed.ReduceOp.MAX)
    return tuple(tensor.tolist())


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


def numbers_of(logged: Mapping[str, Any], exclude: Iterable[str] = ()) -> dict[str, SupportsFloat]:
    """Return the numbers of what was logged, by name, without those of `exclude`.

    A loss by a usual name (`train_loss`, `eval_loss`) is also returned as `loss` or `validation_loss`.
    """
    left_out = {"", "step", "at", *exclude}
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
