"""Stages: which of several stages a run has reached, and what each of them cost. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from vastrun.contract.outcome import StageEnd
from vastrun.contract.program import StageSpan
from vastrun.launcher.config import program_of, read_job
from vastrun.launcher.core import Run

_RUN_ID = re.compile(r"[a-z0-9-]{1,64}", re.ASCII)


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
