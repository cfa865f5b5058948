"""Scored folder: the checkpoints of a training, of which the best one may be kept. No torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from vastrun.contract.checkpoint_folder import MANIFEST, CheckpointFolder
from vastrun.contract.outcome import FileChecksum
from vastrun.contract.records import Pattern, read_json, write_json

BEST = "best.json"


@dataclass(frozen=True, kw_only=True)
class CheckpointScore:
    """The score of a checkpoint; lower is better."""

    by: str
    """Name of the metric."""
    value: float


@dataclass(frozen=True, kw_only=True)
class BestCheckpoint(CheckpointScore):
    """The content of `best.json`."""

    step: int
    path: Annotated[str, Pattern(r"step-\d{6,}")]
    """The checkpoint's folder, relative to the folder of `best.json`; `latest.json` has the same field."""


@dataclass(frozen=True, kw_only=True)
class ScoredFolder(CheckpointFolder):
    """The checkpoints of a training."""

    keep_best: bool
    """Keep the best checkpoint, too."""
    first_step: int = 0
    """Step after which the current stage began: scores of checkpoints up to it are not comparable."""

    def commit(self, step: int, files: list[FileChecksum], score: CheckpointScore | None = None) -> None:
        """Make the part of `step` the newest checkpoint as `CheckpointFolder` does; keep the best one."""
        name = self._make_newest(step, files)
        best = best_of(self.path) if self.keep_best else None
        if self.keep_best and score is not None and self._is_better(score, best):
            best = BestCheckpoint(step=step, path=name, by=score.by, value=score.value)
            write_json(self.path / BEST, asdict(best))
        self._prune(name, *([best.path] if best else []))

    def _is_better(self, score: CheckpointScore, best: BestCheckpoint | None) -> bool:
        """Tell whether a score beats the best one. A best score of another metric is replaced."""
        is_comparable = best is not None and score.by == best.by and best.step > self.first_step
        return best is None or not is_comparable or score.value < best.value


def best_of(checkpoints: Path) -> BestCheckpoint | None:
    """Return the best of the existing checkpoints in a folder; None when there is none."""
    try:
        best = read_json(BestCheckpoint, (checkpoints / BEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return best if (checkpoints / best.path / MANIFEST).is_file() else None
