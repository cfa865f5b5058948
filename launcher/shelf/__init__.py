"""The shelf: where a run's outputs come to lie on this computer, each checked against its checksum."""

from __future__ import annotations

import tempfile
from pathlib import Path

from launcher.model import CheckpointCopy, Collected, Run
from launcher.ports import Remote
from launcher.shelf.checkpoints import continue_copy
from launcher.shelf.collecting import collect
from launcher.shelf.logcopy import pump
from launcher.shelf.places import IgnoresCase, ignores_case
from launcher.shelf.storing import need_space, storing


class FolderShelf:
    """A folder a run. `Shelf` says what each verb promises."""

    def __init__(self, disk_ignores_case: IgnoresCase = ignores_case) -> None:
        self._disk_ignores_case = disk_ignores_case

    def check(self, run: Run) -> None:
        out = Path(run.out_dir)
        with storing(out):
            out.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=out) as file:
                file.write(b"\0")
            if not any(
                out.iterdir()
            ):  # ours alone: kept out of the user's commits, and of what the next run ships
                (out / ".gitignore").write_text("*\n")
        need_space(out, 0)

    def pump(self, run: Run, remote: Remote) -> str:
        out = Path(run.out_dir)
        with storing(out):
            return pump(out, remote, whole_lines=True).decode(errors="replace")

    def save_checkpoint(self, run: Run, remote: Remote, *, limit: int) -> CheckpointCopy | None:
        out = Path(run.out_dir)
        with storing(out):
            return continue_copy(out, remote, limit)

    def collect(self, run: Run, remote: Remote) -> Collected:
        out = Path(run.out_dir)
        with storing(out):
            while pump(out, remote, whole_lines=False):
                pass
            return collect(out, remote, self._disk_ignores_case)
