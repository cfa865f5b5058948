"""Beginning: whether a training has begun, from what is seen of it."""

from __future__ import annotations

from dataclasses import dataclass

from launcher.core import BoxStatus
from launcher.core.job import JobSpec
from launcher.flow.progress import PREPARING, TRAIN, awaits_beats

SETTLED_S = 5.0
"""A program that tells no step has begun when its ranks have lived for so long."""


@dataclass
class Beginning:
    """What is remembered of a training until it has begun."""

    has_begun: bool = False
    _first_step: int | None = None
    """The step that it starts from."""
    _started_at: float | None = None

    def saw(self, box_status: BoxStatus, spec: JobSpec, now: float) -> None:
        """Note a look at the box; it may show that the training has begun.

        One that needs no heartbeats for its success has begun, too, when its ranks have lived for a while.
        """
        if not self.has_begun and box_status.box == "running":
            if spec.hold is not None:
                self.has_begun = box_status.onstart_step == TRAIN
                return
            self.has_begun = self._steps(box_status) if spec.train else self._runs(box_status, spec, now)

    def _steps(self, box_status: BoxStatus) -> bool:
        if not box_status.ranks or any(rank.activity in ("", "start") for rank in box_status.ranks):
            return False
        if self._first_step is None:
            self._first_step = box_status.step
        return box_status.step > self._first_step

    def _runs(self, box_status: BoxStatus, spec: JobSpec, now: float) -> bool:
        if any(rank.activity not in PREPARING for rank in box_status.ranks):
            return True
        silent = all(rank.activity == "" for rank in box_status.ranks)
        if awaits_beats(spec) or not silent or len(box_status.ranks) < spec.ranks_per_node:
            return False
        self._started_at = now if self._started_at is None else self._started_at
        return now - self._started_at >= SETTLED_S
