"""Manifest: list every file to download, with its checksum, and every file that is omitted.

Standard library only.

`python -m vastrun.onstart.transfer.manifest` runs when only the log and the exit code are still written.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.checkpoint_folder import checksum_file, looks_like_weights, newest_first
from vastrun.contract.job import EXCLUDE_PREFIX, Job, matching_files, matching_paths, working_folder
from vastrun.contract.outcome import FileChecksum
from vastrun.contract.records import write_json
from vastrun.onstart.optional_files import size_of
from vastrun.onstart.supervision.program_files import printable
from vastrun.onstart.transfer.program_outputs import ProgramOutputs, lineage, link_files_elsewhere

_STILL_WRITTEN = (layout.LOG, layout.EXIT, layout.MANIFEST)
MAX_FILES = 50_000
MAX_BYTES = 15 << 20
"""The launcher's limit on a manifest: `launcher/gate/caps.py`."""
_MAX_PATH_BYTES = 1024
MAX_FOLDERS = 64
"""Maximum folders of a path that the launcher accepts: `launcher/gate/caps.py`."""
_MAX_LEFT_OUT = 100
_ENTRY_BYTES = 120
"""Bytes of a file's entry in the manifest, without its path."""


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A file that is not downloaded."""

    path: str
    """Path relative to the box, in printable characters."""
    why: str
    size: int = 0
    """Size in bytes; 0 if unknown."""
    named: bool = True
    """True when the job names it as an output, or the program wrote it to the folder for outputs."""


def main() -> None:
    """Write `run/manifest.json`."""
    box = Path(os.environ["VASTRUN_BOX"]).resolve()
    write_json(box / layout.MANIFEST, build_listing(box).to_json())


def build_listing(
    box: Path, *, max_files: int = MAX_FILES, max_bytes: int = MAX_BYTES, with_sums: bool = True
) -> DownloadList:
    """List all complete files under `run/` and the job's outputs, each once; the user's files come last.

    Files beyond the limits of a manifest are omitted, the last ones first. `with_sums`: False skips the
    checksums, for a caller that needs only the omitted files.
    """
    job = job_of(box)
    if job is not None:
        link_files_elsewhere(box, job)
    outputs = None if job is None else ProgramOutputs.of(box, job)
    excluded = frozenset((*_excluded_paths(box, job), *_large_snapshots(box, max_files // 2)))
    named = frozenset(_named_outputs(box, job, excluded))
    listing = DownloadList(box=box, named=named, outputs=outputs, bytes_left=max_bytes, max_files=max_files)
    listing.with_sums = with_sums
    of_run = (path for path in _files_of_run(box) if excluded.isdisjoint(lineage(path)))
    for path in sorted({*of_run, *named}, key=lambda path: (listing.is_output(path), path)):
        if path in named or outputs is None or not outputs.is_elsewhere(path):
            listing.add(path)
    if job is not None and outputs is not None:
        listing.add_program_outputs(outputs, job, excluded)
    return listing


@dataclass(kw_only=True)
class DownloadList:
    """The files to download, and the omitted ones."""

    box: Path
    named: Collection[Path]
    outputs: ProgramOutputs | None
    bytes_left: int = MAX_BYTES
    max_files: int = MAX_FILES
    with_sums: bool = True
    files: list[FileChecksum] = field(default_factory=list)
    left_out: dict[str, LeftOut] = field(default_factory=dict)
    """The omitted files, by their path as it is shown, or by the pattern that names none."""
    _sums: dict[tuple[int, ...], FileChecksum] = field(default_factory=dict)
    """By inode: snapshots have links to each other's files, and to the program's."""

    def add(self, path: Path) -> None:
        """List a file with its checksum, or record why it is omitted."""
        why = self._why_left_out(path)
        found = self._sum_of(path) if why is None else None
        if found is not None:
            self.bytes_left -= len(json.dumps(found.path)) + _ENTRY_BYTES
            if self.bytes_left >= 0 and len(self.files) < self.max_files:
                self.files.append(found)
                return
            why = "the run has too many files"
        # The other files of `run/` are no program's.
        if self.is_output(path) or not path.is_relative_to(self.box / layout.RUN):
            self.leave_out(path, why or "cannot be read", size=size_of(path), named=self.is_output(path))

    def _sum_of(self, path: Path) -> FileChecksum | None:
        relative = str(path.relative_to(self.box))
        if not self.with_sums:
            return FileChecksum(path=relative, size=size_of(path), sha256="0" * 64)
        try:
            stat = path.stat()
            inode = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)
            if inode not in self._sums:
                self._sums[inode] = checksum_file(path)
            return replace(self._sums[inode], path=relative)
        except OSError:
            return None

    def add_program_outputs(self, outputs: ProgramOutputs, job: Job, excluded: frozenset[str]) -> None:
        """List the other files that the program wrote, and those that are omitted."""
        for file, why in outputs.select():
            if file.path in self.named or not excluded.isdisjoint(lineage(file.path)):
                continue
            if why is None:
                self.add(file.path)
            else:
                self.leave_out(file.path, why, size=file.size, named=False)
        for folder in outputs.search.cut:
            self.leave_out(folder, "has too many files to search", size=0, named=False)
        for pattern in job.named_outputs:
            if not matching_files(self.box, pattern):
                self.left_out[pattern] = LeftOut(path=printable(pattern), why="no file matches")

    def leave_out(self, path: Path, why: str, *, size: int, named: bool) -> None:
        """Record an omitted file; the files of an omitted folder count together."""
        shown = self._shown(path)
        known = self.left_out.get(shown)
        total = size if known is None else known.size + size
        self.left_out[shown] = LeftOut(path=shown, why=why, size=total, named=named)

    def is_output(self, path: Path) -> bool:
        """Tell whether the job names the file, or it is in the folder for outputs."""
        return path in self.named or path.is_relative_to(self.box / layout.OUTPUTS)

    def omitted(self) -> list[LeftOut]:
        """Return the omitted files: first those that look like weights, then the largest."""
        return sorted(
            self.left_out.values(), key=lambda one: (not looks_like_weights(one.path, one.size), -one.size)
        )

    def to_json(self) -> dict[str, object]:
        """Return the content of `run/manifest.json`."""
        return {
            "files": [asdict(file) for file in sorted(self.files, key=lambda file: Path(file.path))],
            "left_out": [asdict(each) for each in self.omitted()[:_MAX_LEFT_OUT]],
            "left_out_count": len(self.left_out),
            "left_out_bytes": sum(each.size for each in self.left_out.values()),
        }

    def _why_left_out(self, path: Path) -> str | None:
        """Return why a file is omitted; None: it is downloaded.

        A link out of the box is an output only if the program wrote its target. Programs on the user's
        computer act on names like `.git`, or with control characters.
        """
        parts = path.relative_to(self.box).parts
        if not all(map(layout.should_download, parts)):
            if all(part.isprintable() for part in parts):
                return "version control reads files of this name"
            return "its name has control characters"
        if len(os.fsencode(path.relative_to(self.box))) > _MAX_PATH_BYTES:
            return f"its path has more than {_MAX_PATH_BYTES} bytes"
        if len(parts) > MAX_FOLDERS + 1:
            return f"its path has more than {MAX_FOLDERS} folders"
        if not path.exists():
            return "a broken link" if path.is_symlink() else "cannot be read"
        if (
            path.is_symlink()
            and not path.resolve().is_relative_to(self.box)
            and not (self.outputs is not None and self.outputs.wrote(path))
        ):
            return f"a link out of the box, to {printable(os.path.realpath(path))[:200]}"
        if path.is_dir():
            return "a link to a folder"
        return None if path.is_file() else "not a regular file"

    def _shown(self, path: Path) -> str:
        """Return the path relative to the box, up to the first name that is not downloaded."""
        parts = path.relative_to(self.box).parts
        bad = next((n for n, part in enumerate(parts) if not layout.should_download(part)), len(parts))
        return printable("/".join(parts[: bad + 1]))


def job_of(box: Path) -> Job | None:
    """Read the job; on failure print the reason to stderr and return None."""
    try:
        return Job.read(box)
    except (OSError, ValueError) as error:
        print(f"cannot read the job's outputs: {error}", file=sys.stderr)
        return None


def _files_of_run(box: Path) -> Iterator[Path]:
    for folder, subfolders, names in os.walk(box / layout.RUN):
        links = [name for name in subfolders if Path(folder, name).is_symlink()]
        for name in (*names, *links):
            path = Path(folder, name)
            # A killed writer left it unfinished (`write_atomically`).
            is_part = any(part.startswith(".") and part.endswith(".part") for part in path.parts)
            if is_part or str(path.relative_to(box)) in _STILL_WRITTEN:
                continue
            if path.parent.name == Path(layout.STACKS).name and not path.stat().st_size:
                continue  # a rank that never dumped its stacks
            yield path


def _named_outputs(box: Path, job: Job | None, excluded: frozenset[str]) -> Iterator[Path]:
    """Yield the files that the job names."""
    if job is None:
        return
    for pattern in job.named_outputs:
        yield from (path for path in _matching(box, pattern) if excluded.isdisjoint(lineage(path)))
    # A file that proves the success is worthless if it is not downloaded.
    for pattern in job.success.files if job.success else ():
        yield from _matching(box, pattern)


def _matching(box: Path, pattern: str) -> Iterator[Path]:
    # A pattern may begin with `../`, and a file must not be listed under two names.
    paths = (Path(os.path.normpath(path)) for path in matching_files(box, pattern))
    return (path for path in paths if path.is_relative_to(box))


def _excluded_paths(box: Path, job: Job | None) -> Iterator[str]:
    """Yield the absolute paths that the job excludes from download."""
    for pattern in () if job is None else job.outputs:
        if pattern.startswith(EXCLUDE_PREFIX):
            yield from map(os.path.normpath, matching_paths(working_folder(box), pattern[1:]))


def _large_snapshots(box: Path, files: int) -> Iterator[str]:
    """Yield the snapshots that would leave too little of the list to the outputs, the oldest first to go."""
    for path in newest_first(box / layout.CHECKPOINTS):
        files -= sum(len(names) for _, _, names in os.walk(path))
        if files < 0:
            yield str(path)


if __name__ == "__main__":
    main()
