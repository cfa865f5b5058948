"""Program outputs: select the files to download among those that a user's program wrote.

Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.onstart.supervision.checkpoint_entries import entry_at, is_sidecar
from vastrun.onstart.supervision.program_files import FilesBefore, ProgramFileSearch, WrittenFile


@dataclass(kw_only=True)
class ProgramOutputs:
    """The files that a program wrote, named by its job or not."""

    box: Path
    job: Job
    search: ProgramFileSearch
    written: tuple[WrittenFile, ...]
    """Files without the checkpoints, the smallest first."""
    linked: Collection[tuple[int, int]]
    """Device and inode of the files that the stored checkpoints hold by hard links."""

    @classmethod
    def of(cls, box: Path, job: Job) -> ProgramOutputs | None:
        """Return the outputs of the job's program; None if none was started."""
        before = None if job.program.keeps_records else FilesBefore.read(box)
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
        """Return the files to download, and the others with the reason."""
        downloads: list[WrittenFile] = []
        unselected: list[tuple[WrittenFile, str]] = []
        left_bytes = self.job.outputs_gb * 1e9
        for file in self.written:
            if file.path.is_relative_to(self.box / layout.OUTPUTS):
                downloads.append(file)
            elif self.job.named_outputs:
                unselected.append((file, "not named in outputs"))
            elif file.size > left_bytes:
                unselected.append((file, f"outputs_gb is {self.job.outputs_gb:g}"))
            else:
                left_bytes -= file.size
                downloads.append(file)
        return downloads, unselected

    def is_elsewhere(self, path: Path) -> bool:
        """Tell whether a file in the folder for outputs is downloaded under another path."""
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
        """Tell whether the program wrote the target of a link."""
        try:
            return self.search.before.is_new(link.stat())
        except OSError:
            return False


def lineage(path: Path) -> frozenset[str]:
    """Return a path and all folders above it."""
    return frozenset((str(path), *map(str, path.parents)))


def _checkpoints(box: Path, job: Job) -> Iterator[str]:
    """Yield the paths that `checkpoints` matches: the newest are stored, older ones are not needed.

    Yields none if no checkpoint was stored: all saved files then count as outputs.
    """
    settings = job.checkpoints
    if settings is None or not (box / layout.CHECKPOINTS / "latest.json").is_file():
        return
    root = settings.folder(box)
    for path in root.glob(settings.pattern):
        if not path.is_dir() and is_sidecar(path.name, settings.pattern):
            continue
        entry = entry_at(str(path), root)
        # A checkpoint with a link to the outside was not stored.
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
