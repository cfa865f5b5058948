"""Stage ends: whether a finished stage passes its gate, and how far each came. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.gates import missed_gate
from vastrun.contract.job import Job
from vastrun.contract.outcome import Name, StageEnd, StartRecord
from vastrun.contract.records import parse_json, read_as
from vastrun.contract.stages import read_records
from vastrun.trainer.supervision.diagnosis import Diagnosis
from vastrun.trainer.supervision.evidence import read_final


def stage_of(box: Path) -> str | None:
    """Return the stage that the ranks of the last start trained; None: they never said."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        name: str = read_as(Name, parse_json((box / layout.STAGE).read_text(encoding="utf-8"))["stage"])
        return name
    return None


def with_gate(box: Path, job: Job, diagnosis: Diagnosis) -> Diagnosis:
    """Return the diagnosis of a start that finished with scores that miss its gate; else the same one.

    Only the first node has scores; the others follow its decision.
    """
    final = read_final(box) if diagnosis.reason == "finished" and job.train else None
    if job.train is None or final is None:
        return diagnosis
    stage = stage_of(box) or job.train.stage_spans[0].name
    missed = missed_gate(job.train.gate_of(stage), stage, final.scores or {})
    if missed is None:
        return diagnosis
    return replace(diagnosis, reason="gate_missed", detail=f"stage {stage} missed its gate: {missed}")


def stage_ends(box: Path, job: Job, starts: Sequence[StartRecord]) -> tuple[StageEnd, ...]:
    """Return how far each stage of a job with several came; empty for any other job."""
    if job.train is None or len(job.train.stage_spans) < 2:
        return ()
    records = {record.stage: record for record in read_records(box)}
    ends = []
    for span in job.train.stage_spans:
        of_it = [start for start in starts if start.stage == span.name]
        record = records.get(span.name)
        # The ranks may have reached a step, and been restarted from an earlier one.
        step = of_it[-1].steps_done if of_it else 0
        steps_done = span.steps if record else min(max(step - span.first_step, 0), span.steps)
        ends.append(
            StageEnd(
                name=span.name,
                steps_done=steps_done,
                steps_planned=span.steps,
                seconds=sum(max(0.0, start.ended_at - start.started_at) for start in of_it),
                scores=dict(record.scores) if record else None,
                missed=missed_gate(job.train.gate_of(span.name), span.name, record.scores)
                if record
                else None,
                run_id=record.run_id if record else None,
            )
        )
    return tuple(ends)
