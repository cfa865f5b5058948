"""Manifest: list every file that is to be downloaded, with its checksum, and outputs that are not.

Standard library only.

`python -m trainer.transfer.manifest` runs when only the log and the exit code are still to be written.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Container, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from trainer.contract import layout
from trainer.contract.job import Job, matching_files
from trainer.contract.outcome import FileSum
from trainer.contract.records import write_json
from trainer.supervision.evidence import file_sum

_STILL_WRITTEN = (layout.LOG, layout.EXIT, layout.MANIFEST)


_MAX_FILES = 50_000
_MAX_FILES_BYTES = 15 << 20
"""Limit of the launcher on a manifest: `launcher/gate/caps.py`."""
_MAX_PATH_BYTES = 1024
_MAX_LEFT_OUT = 100
_ENTRY_BYTES = 120
"""Bytes of a file in the manifest, without its path."""


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """An output that is not downloaded."""

    path: str
    """From the box, in printable characters."""
    why: str


@dataclass(frozen=True, kw_only=True)
class DownloadList:
    """All that was found to be downloaded, and the outputs that are not."""

    files: tuple[FileSum, ...]
    left_out: tuple[LeftOut, ...]


def main() -> int:
    """Write `run/manifest.json` and return 0."""
    box = Path(os.environ["VASTRUN_BOX"]).resolve()
    listing = listing_of(box)
    write_json(
        box / layout.MANIFEST,
        {
            "files": [asdict(file) for file in listing.files],
            "left_out": [asdict(each) for each in listing.left_out[:_MAX_LEFT_OUT]],
            "left_out_count": len(listing.left_out),
        },
    )
    return 0


def listing_of(box: Path, *, max_files: int = _MAX_FILES, max_bytes: int = _MAX_FILES_BYTES) -> DownloadList:
    """Return all complete files under `run/` and the job's outputs, each once; the user's own come last.

    Of what is more than a manifest may hold, the last ones are left out.
    """
    wanted = set(_outputs(box))
    files: list[FileSum] = []
    left_out: dict[str, str] = {}
    room = max_bytes
    for path in sorted(
        {*_files_of_run(box), *wanted}, key=lambda path: (_is_output(path, box, wanted), path)
    ):
        why = _why_left_out(path, box)
        file = file_sum(path, box) if why is None else None
        if file is not None:
            room -= len(json.dumps(file.path)) + _ENTRY_BYTES
            if room >= 0 and len(files) < max_files:
                files.append(file)
                continue
            why = "more files than one run may have"
        if _is_output(path, box, wanted):
            left_out.setdefault(_shown(path, box), why or "cannot be read")
    return DownloadList(
        files=tuple(sorted(files, key=lambda file: Path(file.path))),
        left_out=tuple(LeftOut(path=path, why=why) for path, why in left_out.items()),
    )


def _files_of_run(box: Path) -> Iterator[Path]:
    for folder, subfolders, names in os.walk(box / layout.RUN):
        links = [name for name in subfolders if Path(folder, name).is_symlink()]
        for name in (*names, *links):
            path = Path(folder, name)
            if str(path.relative_to(box)) in _STILL_WRITTEN or _is_half(path) or _is_unused(path):
                continue
            yield path


def _outputs(box: Path) -> Iterator[Path]:
    try:
        job = Job.read(box)
    except (OSError, ValueError) as error:
        print(f"the job's outputs are not known: {error}", file=sys.stderr)
        return
    # What proves the success is worth nothing where it is not downloaded.
    for pattern in (*job.outputs, *(job.success.files if job.success else ())):
        # A pattern may begin with `../`, and one file must not be listed by two names.
        yield from (Path(os.path.normpath(path)) for path in matching_files(box, pattern))


def _is_half(path: Path) -> bool:
    """Tell whether a killed writer left this unfinished (`write_atomically`)."""
    return any(part.startswith(".") and part.endswith(".part") for part in path.parts)


def _is_unused(path: Path) -> bool:
    """Tell whether this is a file for the stacks of a rank that was never asked for them."""
    return path.parent.name == Path(layout.STACKS).name and path.stat().st_size == 0


def _is_output(path: Path, box: Path, wanted: Container[Path]) -> bool:
    return path in wanted or path.is_relative_to(box / layout.OUTPUTS)


def _why_left_out(path: Path, box: Path) -> str | None:
    """Say why a file is not downloaded; None: it is.

    A link that leads out of the box is no output, and a name such as `.git` or one that steers a terminal is
    obeyed by programs on the user's computer.
    """
    parts = path.relative_to(box).parts
    if not all(map(layout.comes_home, parts)):
        is_odd = not all(part.isprintable() for part in parts)
        return "its name has control characters" if is_odd else "version control obeys files of that name"
    if len(os.fsencode(path.relative_to(box))) > _MAX_PATH_BYTES:
        return f"its path has more than {_MAX_PATH_BYTES} bytes"
    if not path.exists():
        return "a link to nothing" if path.is_symlink() else "cannot be read"
    if path.is_symlink() and not path.resolve().is_relative_to(box):
        return f"a link out of the box, to {_printable(os.path.realpath(path))[:200]}"
    if path.is_dir():
        return "a link to a folder"
    return None if path.is_file() else "no regular file"


def _shown(path: Path, box: Path) -> str:
    """Return the path from the box, up to the first name that is not downloaded."""
    parts = path.relative_to(box).parts
    bad = next((n for n, part in enumerate(parts) if not layout.comes_home(part)), len(parts))
    return _printable("/".join(parts[: bad + 1]))


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


if __name__ == "__main__":
    sys.exit(main())
