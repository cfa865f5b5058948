"""Path listing: list the files at one path, or all written files that the manifest omits, with checksums.

Standard library only.

`python -m vastrun.onstart.transfer.path_listing LIST [PATH]`: write the manifest LIST, a path in the box.
PATH is relative to the box, the code folder or the folder for outputs, and must be in one of the latter two;
files behind a link to another folder count if the program wrote them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.records import write_json
from vastrun.onstart.supervision.program_files import printable, walk
from vastrun.onstart.transfer import manifest
from vastrun.onstart.transfer.program_outputs import ProgramOutputs

_ROOTS = (layout.CODE, layout.OUTPUTS)


def main() -> int:
    """Write the list and return 0."""
    box = Path(os.environ["VASTRUN_BOX"]).resolve()
    target, *paths = sys.argv[1:]
    job = manifest.job_of(box)
    if job is not None:
        write_json(box / target, list_path(box, job, paths[0] if paths else None).to_json())
    return 0 if job is not None else 1


def list_path(box: Path, job: Job, path: str | None) -> manifest.DownloadList:
    """List the files at a path; None: all files that the manifest omits."""
    outputs = ProgramOutputs.of(box, job)
    listing = manifest.DownloadList(box=box, named=(), outputs=outputs)
    if path is None:
        for left_out in manifest.build_listing(box, with_sums=False).omitted():
            if left_out.size and os.path.lexists(box / left_out.path):
                listing.add(box / left_out.path)
        return listing
    found = _resolve_path(box, path)
    if found is None:
        why = "no such file in the code folder or the outputs"
        listing.left_out[path] = manifest.LeftOut(path=printable(path)[:300], why=why)
        return listing
    inside = sorted(found / name for name, _ in walk(found, box, job).files())
    for file in inside if found.is_dir() else [found]:
        real = file.resolve()
        if any(real.is_relative_to(box / root) for root in _ROOTS) or (
            outputs is not None and outputs.wrote(file)
        ):
            listing.add(file)
        else:
            listing.leave_out(file, "not in the code folder or the outputs", size=0, named=True)
    return listing


def _resolve_path(box: Path, path: str) -> Path | None:
    """Return the file or folder at a path of the user; None when no folder of the program has it."""
    name = os.path.normpath(path)
    if os.path.isabs(name) or name.startswith("..") or "\0" in name:  # noqa: PTH117
        return None
    places = [box / name, *(box / root / name for root in _ROOTS)]
    inside = [place for place in places if any(place.is_relative_to(box / root) for root in _ROOTS)]
    return next((place for place in inside if place.exists()), None)


if __name__ == "__main__":
    sys.exit(main())
