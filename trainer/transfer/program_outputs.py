"""Program outputs: which of the files that a user's program wrote are downloaded, and which are not.

Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.trainer.supervision.checkpoint_entries import entry_at, is_sidecar
from vastrun.trainer.supervision.program_files import FilesBefore, ProgramFileSearch, WrittenFile

UNNAMED = "not named in outputs"


@dataclass(kw_only=True)
class ProgramOutputs:
    """Files that a program wrote, whether its job names them or not."""

    box: Path
    job: Job
    search: ProgramFileSearch
    written: tuple[WrittenFile, ...]
    """The smallest first, without the checkpoints."""
    linked: Collection[tuple[int, int]]
    """Device and inode of the files that the newest checkpoints hold by hard links."""

    @classmethod
    def of(cls, box: Path, job: Job) -> ProgramOutputs | None:
        """Return those of the job's program; None where none was started."""
        before = FilesBefore.read(box) if job.command is not None else None
        if before is None:
            return None
        search = ProgramFileSearch(box=box, job=job, before=before)
        checkpoints = frozenset(_checkpoints(box, job))
        found = {file.path: file for file in (*search.below(layout.CODE), *search.below(layout.OUTPUTS))}
        return cls(
            box=box,
            job=job,
            search=search,
            written=tuple(
                sorted(
                    (file for path, file in found.items() if checkpoints.isdisjoint(lineage(path))),
                    key=lambda file: (file.size, file.path),
                )
            ),
            linked=_files_of_checkpoints(box) if job.checkpoints is not None else frozenset(),
        )

    def select(self) -> tuple[list[WrittenFile], list[tuple[WrittenFile, str]]]:
        """Return the files to download, and the others with why they are not."""
        downloads: list[WrittenFile] = []
        unselected: list[tuple[WrittenFile, str]] = []
        room = self.job.outputs_gb * 1e9
        for file in self.written:
            if file.path.is_relative_to(self.box / layout.OUTPUTS):
                downloads.append(file)
            elif self.job.named_outputs:
                unselected.append((file, UNNAMED))
            elif file.size > room:
                unselected.append((file, f"outputs_gb is {self.job.outputs_gb:g}"))
            else:
                room -= file.size
                downloads.append(file)
        return downloads, unselected

    def is_elsewhere(self, path: Path) -> bool:
        """Tell whether what is at a path of the folder for outputs is downloaded by another name."""
        if not path.is_relative_to(self.box / layout.OUTPUTS):
            return False
        if path in self.search.followed:
            return True
        try:
            stat = path.stat()
        except OSError:
            return False
        return (stat.st_dev, stat.st_ino) in self.linked

    def wrote(self, link: Path) -> bool:
        """Tell whether the program wrote the file that a link leads to."""
        try:
            return self.search.before.is_new(link.stat())
        except OSError:
            return False


def lineage(path: Path) -> frozenset[str]:
    """Return a path and all folders above it."""
    return frozenset((str(path), *map(str, path.parents)))


def _checkpoints(box: Path, job: Job) -> Iterator[str]:
    """Yield the files and folders that `checkpoints` names: the newest were taken, older ones are not needed.

    None where no checkpoint was taken: all that the program saved is its outputs then.
    """
    settings = job.checkpoints
    if settings is None or not (box / layout.CHECKPOINTS / "latest.json").is_file():
        return
    root = settings.folder(box)
    for path in root.glob(settings.pattern):
        if not path.is_dir() and is_sidecar(path.name, settings.pattern):
            continue
        entry = entry_at(str(path), root)
        # What a link leads to outside is not taken.
        if path.resolve().is_relative_to(root) and not (entry and entry.leads_out):
            yield str(path)


def _files_of_checkpoints(box: Path) -> frozenset[tuple[int, int]]:
    found = set()
    for folder, _, names in os.walk(box / layout.CHECKPOINTS):
        for name in names:
            stat = Path(folder, name).stat()
            if stat.st_nlink > 1:
                found.add((stat.st_dev, stat.st_ino))
    return frozenset(found)
