"""Program outputs: select the files to download among those that a user's program wrote.

Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

from vastrun.contract import layout
from vastrun.contract.checkpoint_folder import MANIFEST, MIN_BYTES, newest_first
from vastrun.contract.job import Job, matching_paths
from vastrun.onstart.supervision.program_files import FilesBefore, ProgramFileSearch, WrittenFile, walk

ELSEWHERE = f"{layout.OUTPUTS}/elsewhere"
"""Folder with links to what the program wrote outside of the box."""
_FOLDERS = ("/workspace", "/data", "/mnt")
"""Where programs for rented machines write, besides the home folder."""


@dataclass(kw_only=True)
class ProgramOutputs:
    """The files that a program wrote, named by its job or not."""

    search: ProgramFileSearch
    written: tuple[WrittenFile, ...]
    """Files without the checkpoints, the smallest first."""
    checkpoints: Collection[str]
    """Paths that the newest snapshot has, or that are too old for it."""

    @classmethod
    def of(cls, box: Path, job: Job) -> ProgramOutputs | None:
        """Return the outputs of the job's program; None if none was started."""
        before = None if job.program.keeps_records else FilesBefore.read(box)
        if before is None:
            return None
        search = ProgramFileSearch(box=box, job=job, before=before)
        checkpoints = frozenset(_checkpoints(box, job))
        found = {file.path: file for file in (*search.below(layout.CODE), *search.below(layout.OUTPUTS))}
        outputs = (file for path, file in found.items() if checkpoints.isdisjoint(lineage(path)))
        written = tuple(sorted(outputs, key=lambda file: (file.size, file.path)))
        return cls(search=search, written=written, checkpoints=checkpoints)

    def select(self) -> Iterator[tuple[WrittenFile, str | None]]:
        """Yield each file with the reason why it is not downloaded; None: it is downloaded."""
        box, job = self.search.box, self.search.job
        left_bytes = job.outputs_gb * 1e9
        for file in self.written:
            is_output = file.path.is_relative_to(box / layout.OUTPUTS)
            if is_output and not file.path.is_relative_to(box / ELSEWHERE):
                yield file, None
            elif job.named_outputs:
                yield file, "not named in outputs"
            elif file.size > left_bytes:
                yield file, f"outputs_gb is {job.outputs_gb:g}"
            else:
                left_bytes -= file.size
                yield file, None

    def is_elsewhere(self, path: Path) -> bool:
        """Tell whether a file in the folder for outputs is downloaded under another path."""
        is_output = path.is_relative_to(self.search.box / layout.OUTPUTS)
        is_stored = path in self.search.followed or not lineage(path).isdisjoint(self.checkpoints)
        return is_output and is_stored

    def wrote(self, link: Path) -> bool:
        """Tell whether the program wrote the target of a link."""
        with suppress(OSError):
            return self.search.before.is_new(link.stat())
        return False


def link_files_elsewhere(box: Path, job: Job) -> None:
    """Link what was written outside of the box since the program started, on a machine of the run alone.

    Files below 1 MB are left out, as those of caches are.
    """
    before = None if job.program.keeps_records else FilesBefore.read(box)
    if before is None or os.environ.get("VASTRUN_PROVIDER") not in ("vast", "docker"):
        return
    for root in (Path(os.path.expanduser("~")), *map(Path, _FOLDERS)):  # noqa: PTH111
        search = walk(root, box, job)
        search.caches = {*search.caches, str(box)}
        for name, stat in search.files():
            place, path = box / ELSEWHERE / f"{root}/{name}".lstrip("/"), root / name
            is_written = S_ISREG(stat.st_mode) and stat.st_size >= MIN_BYTES and before.is_new(stat)
            if is_written and not os.path.lexists(place):
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(path)


def lineage(path: Path) -> frozenset[str]:
    """Return a path and all folders above it."""
    return frozenset((str(path), *map(str, path.parents)))


def _checkpoints(box: Path, job: Job) -> Iterator[str]:
    """Yield what `checkpoints` matches: the newest are in the newest snapshot, older ones are not needed.

    Yields none of what was written after it: these files count as outputs.
    """
    settings, snapshots = job.checkpoints, newest_first(box / layout.CHECKPOINTS)
    if settings is None or settings.files is None or not snapshots:
        return
    taken_at = (snapshots[0] / MANIFEST).stat().st_mtime
    for path in matching_paths(settings.folder(box), settings.pattern):
        if path.resolve().is_relative_to(box.resolve()) and path.stat().st_mtime <= taken_at:
            yield str(path)
