"""Accelerate: a loop's steps, checkpoints and stop with `save_state`, and a tracker for `Accelerator.log`."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, SupportsFloat

from accelerate import Accelerator
from accelerate.tracking import GeneralTracker

from vastrun import beat
from vastrun.integrations.program import StopAgreement, numbers_of, resume_path

_NAME = re.compile(r"step_(\d+)")


class AccelerateLoop:
    """Reports each step of a loop, and saves and stops when vastrun asks it to. Every rank has one.

        loop = AccelerateLoop(accelerator, save_every=500)
        step = loop.resume()                      # after `prepare`; 0 on a fresh start
        for inputs, targets in accelerator.skip_first_batches(loader, step):
            ...
            step += 1
            if loop.end_step(step, loss=loss):    # True: all ranks stop here; the state is saved
                break

    The job's `checkpoints:` is `checkpoints/step_*`. A folder has its name once it is complete.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        *,
        folder: str | Path = "checkpoints",
        save_every: int | None = None,
        keep: int | None = None,
        report_every: int = 10,
    ) -> None:
        """Note SIGTERM from now on.

        `save_every`: steps between two checkpoints; None: only a stop saves one. `keep`: how many of them are
        kept; None: all. `report_every`: steps between two reports of metrics, which wait for the GPU.
        """
        self._accelerator = accelerator
        self._folder = Path(folder)
        self._save_every = save_every
        self._keep = keep
        self._report_every = report_every
        self._stop = StopAgreement()

    @property
    def stopped(self) -> bool:
        """True when the training was stopped before its end."""
        return self._stop.stopped

    def resume(self) -> int:
        """Load the checkpoint that vastrun restored, and return its step; 0 on a fresh start.

        Raises ValueError for a checkpoint that was not saved by `save`.
        """
        path = resume_path()
        if path is None:
            return 0
        found = _NAME.fullmatch(Path(path).name)
        if found is None:
            raise ValueError(f"{path} has no step in its name: load it with Accelerator.load_state")
        self._accelerator.load_state(path)
        return int(found[1])

    def end_step(self, step: int, **metrics: SupportsFloat) -> bool:
        """Report the step, and save where it is due. Return True when all ranks stop here, and have saved."""
        if metrics and step % self._report_every == 0:
            beat(step, **metrics)
        else:
            beat(step)
        is_due = self._save_every is not None and step % self._save_every == 0
        should_stop = self._stop.should_stop()
        if is_due or should_stop:
            self.save(step)
        return should_stop

    def save(self, step: int) -> None:
        """Save the state of all ranks as `step_N` in the folder."""
        beat(step, "checkpoint")
        part, final = self._folder / f"tmp-step_{step}", self._folder / f"step_{step}"
        self._accelerator.save_state(str(part))
        self._accelerator.wait_for_everyone()
        if self._accelerator.is_local_main_process:
            shutil.rmtree(final, ignore_errors=True)  # of an earlier start, whose later steps are repeated
            part.rename(final)
            if self._keep is not None:
                names = (_NAME.fullmatch(path.name) for path in self._folder.iterdir())
                for old in sorted(int(name[1]) for name in names if name)[: -self._keep]:
                    shutil.rmtree(self._folder / f"step_{old}", ignore_errors=True)
        self._accelerator.wait_for_everyone()
        beat(step)


class AccelerateTracker(GeneralTracker):
    """Reports what `Accelerator.log` is given: `Accelerator(log_with=[AccelerateTracker()])`."""

    name = "vastrun"
    requires_logging_directory = False

    def __init__(self) -> None:
        super().__init__()
        self._step = 0

    @property
    def tracker(self) -> AccelerateTracker:
        """This object: there is no other tracker behind it."""
        return self

    def log(self, values: Mapping[str, Any], step: int | None = None, **_: Any) -> None:
        """Report the numbers; without a step, as those of the step after the last one."""
        self._step = self._step + 1 if step is None else step
        beat(self._step, **numbers_of(values))
