"""Manifest: list every file that is to be downloaded, with its checksum, and files that are not.

Standard library only.

`python -m vastrun.trainer.transfer.manifest` runs when only the log and the exit code remain to be written.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.job import Job, matching_files, working_folder
from vastrun.contract.outcome import FileChecksum
from vastrun.contract.records import write_json
from vastrun.contract.weights import looks_like_weights
from vastrun.trainer.supervision.evidence import file_checksum
from vastrun.trainer.transfer.program_outputs import ProgramOutputs, lineage

_STILL_WRITTEN = (layout.LOG, layout.EXIT, layout.MANIFEST)


_MAX_FILES = 50_000
_MAX_FILES_BYTES = 15 << 20
"""Limit of the launcher on a manifest: `launcher/gate/caps.py`."""
_MAX_PATH_BYTES = 1024
MAX_FOLDERS = 64
"""Folders of a path that the launcher takes: `launcher/gate/caps.py`."""
_MAX_LEFT_OUT = 100
_ENTRY_BYTES = 120
"""Bytes of a file in the manifest, without its path."""


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A file that is not downloaded."""

    path: str
    """From the box, in printable characters."""
    why: str
    size: int = 0
    """Bytes; 0 where it is not known."""
    named: bool = True
    """The job names it as an output, or the program wrote it to the folder for outputs."""


@dataclass(frozen=True, kw_only=True)
class DownloadList:
    """All that was found to be downloaded, and what is not."""

    files: tuple[FileChecksum, ...]
    left_out: tuple[LeftOut, ...]
    """Sorted: files that look like weights first, then the largest."""

    def to_json(self) -> dict[str, object]:
        """Return `run/manifest.json`."""
        return {
            "files": [asdict(file) for file in self.files],
            "left_out": [asdict(each) for each in self.left_out[:_MAX_LEFT_OUT]],
            "left_out_count": len(self.left_out),
            "left_out_bytes": sum(each.size for each in self.left_out),
        }


def main() -> int:
    """Write `run/manifest.json` and return 0."""
    box = Path(os.environ["VASTRUN_BOX"]).resolve()
    write_json(box / layout.MANIFEST, listing_of(box).to_json())
    return 0


def listing_of(
    box: Path,
    *,
    max_files: int = _MAX_FILES,
    max_bytes: int = _MAX_FILES_BYTES,
    with_sums: bool = True,
) -> DownloadList:
    """Return all complete files under `run/` and the job's outputs, each once; the user's own come last.

    Of what is more than a manifest may hold, the last ones are left out. `with_sums`: False takes no
    checksums, for who only asks what is left out.
    """
    job = job_of(box)
    outputs = None if job is None else ProgramOutputs.of(box, job)
    behind = frozenset(_left_behind(box, job))
    named = frozenset(_named(box, job, behind))
    listing = ListBuilder(box=box, named=named, outputs=outputs, room=max_bytes, max_files=max_files)
    listing.with_sums = with_sums
    of_run = (path for path in _files_of_run(box) if behind.isdisjoint(lineage(path)))
    for path in sorted({*of_run, *named}, key=lambda path: (listing.is_output(path), path)):
        if path in named or outputs is None or not outputs.is_elsewhere(path):
            listing.add(path)
    if outputs is not None:
        listing.add_program_outputs(outputs, behind)
    return listing.done()


@dataclass(kw_only=True)
class ListBuilder:
    """The list while it is made."""

    box: Path
    named: Collection[Path]
    outputs: ProgramOutputs | None
    room: int
    max_files: int
    with_sums: bool = True
    files: list[FileChecksum] = field(default_factory=list)
    left_out: dict[str, LeftOut] = field(default_factory=dict)

    def add(self, path: Path) -> None:
        """List a file with its checksum, or say why it is not downloaded."""
        why = self._why_left_out(path)
        found = self._sum_of(path) if why is None else None
        if found is not None:
            self.room -= len(json.dumps(found.path)) + _ENTRY_BYTES
            if self.room >= 0 and len(self.files) < self.max_files:
                self.files.append(found)
                return
            why = "more files than one run may have"
        if not self.is_run_file(path):
            self.leave_out(path, why or "cannot be read", size=_size_of(path), named=self.is_output(path))

    def _sum_of(self, path: Path) -> FileChecksum | None:
        if self.with_sums:
            return file_checksum(path, self.box)
        return FileChecksum(path=str(path.relative_to(self.box)), size=_size_of(path), sha256="0" * 64)

    def add_program_outputs(self, outputs: ProgramOutputs, behind: frozenset[str]) -> None:
        """List the other files that the program wrote, and those that are not downloaded."""
        downloads, unselected = outputs.select()
        for file in downloads:
            if file.path not in self.named and behind.isdisjoint(lineage(file.path)):
                self.add(file.path)
        for file, why in unselected:
            if file.path not in self.named and behind.isdisjoint(lineage(file.path)):
                self.leave_out(file.path, why, size=file.size, named=False)
        for folder in outputs.search.cut:
            self.leave_out(folder, "has more files than were looked at", size=0, named=False)
        for pattern in outputs.job.named_outputs:
            if not matching_files(self.box, pattern):
                self.left_out[pattern] = LeftOut(path=printable(pattern), why="no file matches")

    def leave_out(self, path: Path, why: str, *, size: int, named: bool) -> None:
        """Note a file that is not downloaded; of a folder that is not, its files together."""
        shown, known = self._shown(path), 0
        if shown in self.left_out:
            known = self.left_out[shown].size
        self.left_out[shown] = LeftOut(path=shown, why=why, size=known + size, named=named)

    def is_output(self, path: Path) -> bool:
        """Tell whether the job names the file, or it lies in the folder for outputs."""
        return path in self.named or path.is_relative_to(self.box / layout.OUTPUTS)

    def is_run_file(self, path: Path) -> bool:
        """Tell whether it is a file of the run that no program wrote."""
        return path.is_relative_to(self.box / layout.RUN) and not self.is_output(path)

    def done(self) -> DownloadList:
        """Return the list, in its order."""
        return DownloadList(
            files=tuple(sorted(self.files, key=lambda file: Path(file.path))),
            left_out=tuple(
                sorted(
                    self.left_out.values(),
                    key=lambda each: (not looks_like_weights(each.path, each.size), -each.size),
                )
            ),
        )

    def _why_left_out(self, path: Path) -> str | None:
        """Say why a file is not downloaded; None: it is.

        A link that leads out of the box is an output only where the program wrote what it leads to. A name
        such as `.git` or one that steers a terminal is obeyed by programs on the user's computer.
        """
        parts = path.relative_to(self.box).parts
        if not all(map(layout.should_download, parts)):
            is_odd = not all(part.isprintable() for part in parts)
            return "its name has control characters" if is_odd else "version control obeys files of that name"
        if len(os.fsencode(path.relative_to(self.box))) > _MAX_PATH_BYTES:
            return f"its path has more than {_MAX_PATH_BYTES} bytes"
        if len(parts) > MAX_FOLDERS + 1:
            return f"its path has more than {MAX_FOLDERS} folders"
        if not path.exists():
            return "a link to nothing" if path.is_symlink() else "cannot be read"
        if (
            path.is_symlink()
            and not path.resolve().is_relative_to(self.box)
            and not (self.outputs is not None and self.outputs.wrote(path))
        ):
            return f"a link out of the box, to {printable(os.path.realpath(path))[:200]}"
        if path.is_dir():
            return "a link to a folder"
        return None if path.is_file() else "no regular file"

    def _shown(self, path: Path) -> str:
        """Return the path from the box, up to the first name that is not downloaded."""
        parts = path.relative_to(self.box).parts
        bad = next((n for n, part in enumerate(parts) if not layout.should_download(part)), len(parts))
        return printable("/".join(parts[: bad + 1]))


def job_of(box: Path) -> Job | None:
    """Read the job; None, after saying why on stderr, when it cannot be read."""
    try:
        return Job.read(box)
    except (OSError, ValueError) as error:
        print(f"the job's outputs are not known: {error}", file=sys.stderr)
        return None


def _files_of_run(box: Path) -> Iterator[Path]:
    for folder, subfolders, names in os.walk(box / layout.RUN):
        links = [name for name in subfolders if Path(folder, name).is_symlink()]
        for name in (*names, *links):
            path = Path(folder, name)
            if str(path.relative_to(box)) in _STILL_WRITTEN or _is_half(path) or _is_unused(path):
                continue
            yield path


def _named(box: Path, job: Job | None, behind: frozenset[str]) -> Iterator[Path]:
    """Yield the files that the job names."""
    if job is None:
        return
    for pattern in job.named_outputs:
        yield from (path for path in _matching(box, pattern) if behind.isdisjoint(lineage(path)))
    # What proves the success is worth nothing where it is not downloaded.
    for pattern in job.success.files if job.success else ():
        yield from _matching(box, pattern)


def _matching(box: Path, pattern: str) -> Iterator[Path]:
    # A pattern may begin with `../`, and one file must not be listed by two names.
    return (Path(os.path.normpath(path)) for path in matching_files(box, pattern))


def _left_behind(box: Path, job: Job | None) -> Iterator[str]:
    """Yield the files and folders that are left on the machine on purpose, absolute."""
    for pattern in () if job is None else job.excluded_outputs:
        paths = working_folder(box).glob(pattern.lstrip("/"))
        yield from (os.path.normpath(path) for path in paths)


def _is_half(path: Path) -> bool:
    """Tell whether a killed writer left this unfinished (`write_atomically`)."""
    return any(part.startswith(".") and part.endswith(".part") for part in path.parts)


def _is_unused(path: Path) -> bool:
    """Tell whether this is a file for the stacks of a rank that was never asked for them."""
    return path.parent.name == Path(layout.STACKS).name and path.stat().st_size == 0


def _size_of(path: Path) -> int:
    """Return the bytes of a file, also behind a link; 0 of what is none."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0


def printable(text: str) -> str:
    """Replace what a terminal cannot show by escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


if __name__ == "__main__":
    sys.exit(main())
