"""Stage ends: whether a finished stage passes its gate, and how far each came. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.outcome import Name, StageEnd, StartRecord
from vastrun.contract.records import parse_json, read_as
from vastrun.contract.stages import read_records
from vastrun.onstart.supervision.diagnosis import Diagnosis
from vastrun.onstart.supervision.evidence import read_final


def stage_of(box: Path) -> str | None:
    """Return the stage that the ranks of the last start trained; None: they never said."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        name: str = read_as(Name, parse_json((box / layout.STAGE).read_text(encoding="utf-8"))["stage"])
        return name
    return None


def with_gate(box: Path, diagnosis: Diagnosis) -> Diagnosis:
    """Return the diagnosis of a start that finished with scores that miss its gate; else the same one.

    Only the first node has scores; the others follow its decision.
    """
    final = read_final(box) if diagnosis.reason == "finished" else None
    if final is None or final.missed is None:
        return diagnosis
    detail = f"stage {final.stage} missed its gate: {final.missed}"
    return replace(diagnosis, reason="gate_missed", detail=detail)


def stage_ends(box: Path, job: Job, starts: Sequence[StartRecord]) -> tuple[StageEnd, ...]:
    """Return how far each stage of a job with several came; empty for any other job."""
    if len(job.program.stages) < 2:
        return ()
    records = {record.stage: record for record in read_records(box)}
    ends = []
    for span in job.program.stages:
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
                missed=record.missed if record else None,
                run_id=record.run_id if record else None,
            )
        )
    return tuple(ends)
