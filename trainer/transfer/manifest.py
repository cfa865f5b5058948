"""The manifest: every file that comes home, by its checksum. Standard library only.

`python -m trainer.transfer.manifest`, when nothing writes to the run any more but its log and its exit code.
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
    """Writes `run/manifest.json`."""
    box = Path(os.environ["VASTRUN_BOX"]).resolve()
    write_json(box / layout.MANIFEST, {"files": [asdict(file) for file in file_sums(box)]})
    return 0


def file_sums(box: Path) -> list[FileSum]:
    """Everything under `run/` that is written no more, and the job's outputs; in order, each once."""
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
        yield from (Path(os.path.normpath(path)) for path in matching_files(box, pattern))


def _is_half(path: Path) -> bool:
    """True for what a killed writer left behind."""
    return any(part.startswith(".") and part.endswith(".part") for part in path.parts)


def _is_unused(path: Path) -> bool:
    """True for the stacks of a rank that nobody asked for."""
    return path.parent.name == Path(layout.STACKS).name and path.stat().st_size == 0


def _is_ours(path: Path, box: Path) -> bool:
    """True for a file in the box; a link that leads out of it is no output."""
    return path.is_file() and path.resolve().is_relative_to(box)


def _comes_home(path: Path, box: Path) -> bool:
    """False for the settings of git and its like, which the user's computer would obey."""
    return all(map(layout.comes_home, path.relative_to(box).parts))


if __name__ == "__main__":
    sys.exit(main())
