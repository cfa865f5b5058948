"""A run's outputs on this computer: where each thing lies, and what the evidence among them says."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from launcher.model import Run
from trainer import layout
from trainer.outcome import Outcome


class Outputs:
    """The folder of one run. What the box keeps below `run/` lies here without that prefix."""

    def __init__(self, run: Run) -> None:
        self.folder = Path(run.out_dir)

    def path(self, box_path: str) -> Path:
        """Where a file of the box's `run/` folder comes to lie."""
        return self.folder / PurePosixPath(box_path).relative_to(layout.RUN)

    @property
    def log(self) -> Path:
        """The merged log; it grows while somebody drives the run."""
        return self.path(layout.LOG)

    @property
    def checkpoints(self) -> Path | None:
        """The folder of checkpoints; None when no complete one came home."""
        folder = self.path(layout.CHECKPOINTS)
        return folder if (folder / "latest.json").is_file() else None

    def outcome(self) -> Outcome | None:
        """The box's own evidence; None when it has not come home or cannot be read."""
        try:
            return Outcome.from_json(self.path(layout.OUTCOME).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
