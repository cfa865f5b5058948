"""Manifest: list every file that is to be downloaded, with its checksum. Standard library only.

`python -m trainer.transfer.manifest` runs when only the log and the exit code are still to be written.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from trainer.contract import layout
from trainer.contract.job import Job, matching_files
from trainer.contract.outcome import FileSum
from trainer.contract.records import write_json
from trainer.supervision.evidence import file_sum

_STILL_WRITTEN = (layout.LOG, layout.EXIT, layout.MANIFEST)


def main() -> int:
    """Write `run/manifest.json` and return 0."""
    box = Path(os.environ["VASTRUN_BOX"]).resolve()
    write_json(box / layout.MANIFEST, {"files": [asdict(file) for file in file_sums(box)]})
    return 0


def file_sums(box: Path) -> list[FileSum]:
    """Return all complete files under `run/` and the job's outputs, sorted by path, each once."""
    paths = {*_files_of_run(box), *_outputs(box)}
    found = (file_sum(path, box) for path in sorted(paths) if _is_ours(path, box) and _comes_home(path, box))
    return [file for file in found if file is not None]


def _files_of_run(box: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(box / layout.RUN):
        for name in names:
            path = Path(folder, name)
            if str(path.relative_to(box)) in _STILL_WRITTEN or _is_half(path) or _is_unused(path):
                continue
            yield path


def _outputs(box: Path) -> Iterator[Path]:
    try:
        patterns = Job.read(box).outputs
    except (OSError, ValueError) as error:
        print(f"the job's outputs are not known: {error}", file=sys.stderr)
        return
    for pattern in patterns:
        # A pattern may begin with `../`, and one file must not be listed by two names.
        yield from (Path(os.path.normpath(path)) for path in matching_files(box, pattern))


def _is_half(path: Path) -> bool:
    """Tell whether a killed writer left this unfinished (`write_atomically`)."""
    return any(part.startswith(".") and part.endswith(".part") for part in path.parts)


def _is_unused(path: Path) -> bool:
    """Tell whether this is a file for the stacks of a rank that was never asked for them."""
    return path.parent.name == Path(layout.STACKS).name and path.stat().st_size == 0


def _is_ours(path: Path, box: Path) -> bool:
    """Tell whether this is a file in the box; a link that leads out of it is no output."""
    return path.is_file() and path.resolve().is_relative_to(box)


def _comes_home(path: Path, box: Path) -> bool:
    """Tell whether no name on the path is one that programs on the user's computer obey, such as `.git`."""
    return all(map(layout.comes_home, path.relative_to(box).parts))


if __name__ == "__main__":
    sys.exit(main())
