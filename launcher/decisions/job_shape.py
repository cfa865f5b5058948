"""Job shape: the part of a job that decides the work of a step, its steps, and what its stages cost. Pure.

Speeds carry over between jobs of one shape.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from vastrun.contract.outcome import StageEnd
from vastrun.contract.program import StageSpan
from vastrun.contract.records import as_json
from vastrun.launcher.config import program_of, read_job
from vastrun.launcher.core import Run

if TYPE_CHECKING:
    from vastrun.launcher.core.job import JobSpec

JobShape = str
"""Digest that is equal for two jobs whose steps are the same work."""
_RUN_ID = re.compile(r"[a-z0-9-]{1,64}", re.ASCII)


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


@dataclass(frozen=True, kw_only=True)
class StageCost:
    """One of several stages of a run, as its machine reported it, and its part of the cost."""

    name: str
    steps_done: int
    steps_planned: int
    seconds: float
    """Time of its ranks on this machine, between their starts and their ends."""
    usd: float
    """Cost of that time at the price of the run's machines; start-up and download are no stage's."""
    scores: Mapping[str, float] | None
    """Scores at its end; null if it did not come to its end."""
    missed: str | None
    """Conditions of its gate that its scores miss."""
    run_id: str | None
    """Run that finished it: this one, or one that it continues."""


def span_at(spans: Sequence[StageSpan], step: int) -> StageSpan:
    """Return the stage of the last of `step` steps; after more than all steps, the last stage."""
    return next((span for span in spans if step <= span.end_step), spans[-1])


def stage_text(spans: Sequence[StageSpan], step: int) -> str:
    """Return the stage after `step` steps, as `refine, stage 2 of 3`; empty where there is only one."""
    if len(spans) < 2:
        return ""
    span = span_at(spans, step)
    return f"{span.name}, stage {span.number + 1} of {len(spans)}"


def stage_costs(run: Run, ends: Sequence[StageEnd], usd_per_hour: float) -> tuple[StageCost, ...]:
    """Return the stages of a run and their costs, by what its machine reported; none where there is only one.

    `usd_per_hour`: price of all of the run's machines.
    """
    reported = {end.name: end for end in ends}
    spans = _spans(run.spec_json) if ends else ()
    unreported = {span.name: StageEnd(name=span.name, steps_planned=span.steps) for span in spans}
    return tuple(
        StageCost(
            name=span.name,
            steps_done=min(end.steps_done, span.steps),
            steps_planned=span.steps,
            seconds=end.seconds,
            usd=end.seconds / 3600 * usd_per_hour,
            scores=end.scores,
            missed=end.missed,
            # What a machine says is shown only if it looks like the id of a run.
            run_id=end.run_id if end.run_id and _RUN_ID.fullmatch(end.run_id) else None,
        )
        for span in spans
        for end in [{**unreported, **reported}[span.name]]
    )


def stage_name(run: Run) -> str:
    """Return the stage of the run's last step; empty where the job trains only one."""
    spans = _spans(run.spec_json)
    return span_at(spans, run.step).name if spans else ""


def stage_end_steps(run: Run) -> frozenset[int]:
    """Return the last steps of the run's stages; none where the job trains only one."""
    return frozenset(span.end_step for span in _spans(run.spec_json))


@lru_cache(maxsize=256)
def _spans(spec_json: str) -> tuple[StageSpan, ...]:
    # To read the whole job takes much longer, and a list has many runs.
    if '"stages"' not in spec_json or '"stages": []' in spec_json:
        return ()
    stages = program_of(read_job(spec_json)).stages
    return stages if len(stages) > 1 else ()
