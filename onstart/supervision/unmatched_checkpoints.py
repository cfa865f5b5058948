"""Unmatched checkpoints: weights that a program saves where the job's `checkpoints` does not look.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.checkpoint_folder import looks_like_weights
from vastrun.contract.job import OUTPUTS_PREFIXES, Job
from vastrun.onstart.supervision.checkpoint_entries import find_entries, printable
from vastrun.onstart.supervision.program_files import FilesBefore, ProgramFileSearch, WrittenFile, files_below

_MAX_CHARACTERS = 200


def unmatched_weights(box: Path, job: Job) -> str:
    """Return the path of the largest weights that the program wrote, as `checkpoints` would name it.

    Empty: something matches `checkpoints`, the program wrote no weights, or the job has no `checkpoints`.
    """
    settings, before = job.checkpoints, FilesBefore.read(box)
    if settings is None or before is None or find_entries(settings.folder(box), settings.pattern).entries:
        return ""
    search = ProgramFileSearch(box=box, job=job, before=before)
    weights = [
        file
        for file in (*search.below(layout.CODE), *_in_outputs(box, job))
        if looks_like_weights(file.path.name, file.size)
    ]
    if not weights:
        return ""
    path = max(weights, key=lambda file: file.size).path
    for folder, prefix in ((box / layout.CODE, ""), (box / layout.OUTPUTS, OUTPUTS_PREFIXES[0])):
        if path.is_relative_to(folder):
            return printable(f"{prefix}{path.relative_to(folder)}")[:_MAX_CHARACTERS]
    return ""


def _in_outputs(box: Path, job: Job) -> Iterator[WrittenFile]:
    for path in files_below(box / layout.OUTPUTS, box, job):
        with suppress(OSError):  # removed meanwhile
            if path.is_file():
                yield WrittenFile(path=path, size=path.stat().st_size)
