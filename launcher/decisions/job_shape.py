"""Job shape: the part of a job that decides the work of a step. Speeds carry over between jobs of one
shape."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from vastrun.contract.records import as_json
from vastrun.launcher.config import program_of

if TYPE_CHECKING:
    from vastrun.launcher.core.job import JobSpec

JobShape = str
"""Digest that is equal for two jobs whose steps are the same work."""


def shape_of(spec: JobSpec) -> JobShape:
    """Return the shape of a job, without the kind of machine and the number of its GPUs."""
    work = (
        program_of(spec).work,
        tuple(sorted(spec.env.items())),
        # What a command does, or a task of the user's own, lies in this folder.
        None if spec.code is None else spec.code.path,
        spec.nodes,
        spec.resources.gpus > 0,
        None if spec.ranks_per_node == max(1, spec.resources.gpus) else spec.ranks_per_node,
    )
    return hashlib.sha256(repr(work).encode("utf-8", "replace")).hexdigest()[:16]


def shape_prefilter(spec: JobSpec) -> Callable[[str], bool]:
    """Return a fast test that excludes most stored jobs of another shape; reading each of them whole is
    slow.

    The test is False only for another shape. Keys that an older text lacks are ignored.
    """
    program = program_of(spec)
    section = json.loads(as_json({program.key: program.config}))[program.key]
    if isinstance(section, dict):
        section = {name: value for name, value in section.items() if name not in program.unlike_work}

    def may_match(spec_json: str) -> bool:
        found = json.loads(spec_json).get(program.key)
        return _agree(section, found) if isinstance(section, dict) else found == section

    return may_match


def _agree(requested: Mapping[str, object], found: object) -> bool:
    """Return whether another section has the same values; those of lists are not compared."""
    if not isinstance(found, dict):
        return False
    for name, value in requested.items():
        other = found.get(name, value)
        if isinstance(value, dict) and isinstance(other, dict):
            if not _agree(value, other):
                return False
        elif not isinstance(value, list) and other != value:
            return False
    return True


def steps_of(spec: JobSpec) -> int | None:
    """Return the last step of a job; None if it has none."""
    if steps := program_of(spec).total_steps:
        return steps
    return None if spec.success is None else spec.success.steps
