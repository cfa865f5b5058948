"""`why` in text: for a run its evidence and what to try next, for a batch the causes of failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from vastrun.contract.outcome import MachineReading, Outcome
from vastrun.launcher.batch.results import PointResult
from vastrun.launcher.batch.schedule import PointState
from vastrun.launcher.commands.explanation import Explanation
from vastrun.launcher.commands.queries import RunRow
from vastrun.launcher.core import Cause, Phase, Proof, Run, StepEnd
from vastrun.launcher.core.batch import Batch
from vastrun.launcher.core.left_out import bytes_text
from vastrun.launcher.decisions.slow_training import IDLE_GPUS
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ui.document import Document
from vastrun.launcher.ui.render import verdict
from vastrun.launcher.ui.render.amounts import duration, facts, left_out_lines, moment, short, table


def explanation_text(explanation: Explanation, width: int | None = None) -> str:
    """Write all evidence on a run's end. `width`: columns of the terminal."""
    run, outcome = explanation.row.run, explanation.outcome
    parts = [
        facts(
            [
                ("run", f"{run.id} ({run.job})"),
                ("verdict" if run.verdict else "state", verdict.verdict_line(explanation.row)),
                ("first", _first_failure(outcome)),
                ("node", _node(explanation.row)),
                ("hang", _hang(explanation)),
                ("measured", "\n".join(_measured(outcome.reading)) if outcome and outcome.reading else ""),
                ("stages", verdict.stage_lines(explanation.stages, run)),
                ("gpus", one_line(explanation.idle_gpus.removeprefix(IDLE_GPUS))),
                ("machine", one_line(explanation.slow_machine) or verdict.silence_text(explanation.row)),
                ("starts", _starts(outcome)),
                ("retry", one_line(explanation.not_retried)),
                ("last", _last(explanation)),
                ("steps", _steps(explanation.steps)),
                ("proofs", verdict.proof_lines(run.proofs)),
            ]
        )
    ]
    if run.cause is Cause.CONTRADICTION:
        parts.append(_side_by_side(run.proofs, width))
    failure = outcome.first_failure if outcome else None
    if failure is not None and (output := failure.traceback or failure.last_lines):
        lines = (f"  {line}" for line in output.rstrip().split("\n"))
        parts.append("\n".join([f"output of rank {failure.rank}:", *lines]))
    parts.append(
        facts(
            [
                ("outputs", run.out_dir),
                ("code", verdict.code_text(explanation.code)),
                ("here", explanation.home),
                ("left out", left_out_lines(explanation.left_out)),
                ("try", explanation.advice),
            ]
        )
    )
    return "\n\n".join(parts)


def _first_failure(outcome: Outcome | None) -> str:
    """Write the rank that failed first, and its error."""
    if outcome is None or outcome.first_failure is None:
        return ""
    rank = outcome.first_failure
    how = rank.signal or rank.exception or f"exit code {rank.exit_code}"
    return f"rank {rank.rank}: {how}{_where(rank.step, rank.activity)}"


def _measured(reading: MachineReading) -> Iterator[str]:
    """Yield what was measured on the machine when a rank had failed."""
    for disk in reading.file_systems:
        full = "; it was full" if disk.full_at is not None else ""
        yield f"{disk.path}: {bytes_text(disk.free)} of {bytes_text(disk.size)} free{full}"
    if reading.memory or reading.memory_killed:
        killed = "; the kernel killed a process for lack of it" if reading.memory_killed else ""
        yield f"memory: {reading.memory or 'no limit is known'}{killed}"
    if reading.gpu_faults is not None:
        yield f"GPUs: {'; '.join(reading.gpu_faults) or 'all respond, without new errors'}"
    if reading.reachable:
        yield f"network: {', '.join(reading.reachable)} answered"
    if reading.unreachable:
        yield f"network: {', '.join(reading.unreachable)} answered at the start, and no longer"
    yield from (f"limits: {line}" for line in reading.limits)
    yield from (f"kernel: {line}" for line in reading.kernel_log or ())
    if reading.processes:
        yield f"still running: {', '.join(f'{each.name} ({each.pid})' for each in reading.processes[:8])}"


def _node(row: RunRow) -> str:
    """Write the node that failed, and the folder of its evidence."""
    run = row.run
    if run.failed_node is None:
        return ""
    failed = next(one for one in row.machines if one.node == run.failed_node)
    return f"{run.failed_node}; its log and evidence: {failed.out_dir}"


def _where(step: int, activity: str) -> str:
    """Write the step and activity of a rank; empty if its program reports neither."""
    if not step and not activity:
        return ""
    return f" at step {step}" + (f" ({activity})" if activity else "")


def _hang(explanation: Explanation) -> str:
    outcome = explanation.outcome
    if outcome is None or outcome.hang is None:
        return ""
    hang = outcome.hang
    lines = [
        f"rank {hang.rank} made no progress for {duration(hang.stalled_s)}{_where(hang.step, hang.activity)}",
        *([f"in {hang.frame}"] if hang.frame else []),
        *(f"stacks {path}" for path in explanation.stacks),
    ]
    return "\n".join(lines)


def _starts(outcome: Outcome | None) -> str:
    """Write the end of each start of the ranks, if there was more than one."""
    lines = [
        f"{number}: {duration(a.ended_at - a.started_at)}"
        f"{f' to step {a.steps_done}' if a.steps_done else ''}, {a.world_size} ranks, {a.reason}: {a.detail}"
        for number, a in enumerate(outcome.starts if outcome else (), start=1)
    ]
    return "\n".join(lines) if len(lines) > 1 else ""


def _steps(ends: Sequence[StepEnd]) -> str:
    """Write one line per step of the machine: name, exit code, duration."""
    width = max((len(end.step) for end in ends), default=0)
    return "\n".join(f"{end.step:<{width}}  exit {end.exit_code:<3}  {duration(end.seconds)}" for end in ends)


def _last(explanation: Explanation) -> str:
    """Write the last event of a run without a verdict or without evidence."""
    event = explanation.last_event
    if event is None or (explanation.row.run.phase is Phase.ENDED and explanation.outcome is not None):
        return ""
    return f"{moment(event.at)} {event.phase.value}: {one_line(event.text)}"


def _side_by_side(proofs: Sequence[Proof], width: int | None) -> str:
    left, right = ([proof for proof in proofs if proof.holds is holds] for holds in (True, False))
    half = None if width is None else (width - 2) // 2
    cells = [
        tuple(short(proof.text if proof else "", half) for proof in pair) for pair in zip_longest(left, right)
    ]
    return table(("SAYS SUCCESS", "SAYS OTHERWISE"), cells)


class FailureCause(Document):
    """A cause of failed points of a batch."""

    cause: str
    """Cause, or the verdict of a run without a cause."""
    points: int
    run: str
    """Newest run with this cause."""
    detail: str
    """Detail of that run."""
    runs: Sequence[str]
    """Last runs of all these points."""


class BatchExplanation(Document):
    """Ends of the points of a batch, with the causes of failures."""

    batch: str
    reason: str
    """Why it ended before its last point; empty: it did not."""
    points: Mapping[str, int]
    """Number of points by verdict, `running` or `waiting`."""
    causes: Sequence[FailureCause]
    """The most frequent first."""
    diverged: Sequence[int]
    """Numbers of the points whose last value of the metric is not a finite number."""
    next: str | None
    """Advice; null if no point failed."""

    @classmethod
    def of(cls, batch: Batch, states: Sequence[PointState], rows: Sequence[PointResult]) -> BatchExplanation:
        """Make the document of a batch's ends and causes."""
        causes = []
        for cause, runs in _failed(states):
            newest, ids = _newest(runs), [run.id for run in runs]
            causes.append(
                FailureCause(cause=cause, points=len(ids), run=newest.id, detail=newest.detail, runs=ids)
            )
        return cls.fill(
            batch,
            batch=batch.name,
            points=dict(_ends(states).most_common()),
            causes=causes,
            diverged=_diverged(rows),
            next=_next(batch) if causes else None,
        )


def batch_why_text(batch: Batch, states: Sequence[PointState], rows: Sequence[PointResult]) -> str:
    """Write how the points ended, and for each cause of a failure the newest run with its detail."""
    counts = ", ".join(f"{count} {end}" for end, count in _ends(states).most_common())
    lines = [("batch", batch.name), ("points", counts or "none yet"), ("ended", batch.reason)]
    if numbers := ", ".join(f"#{number}" for number in _diverged(rows)):
        lines.append(("diverged", f"{numbers}: {batch.spec.objective.metric} ends in no finite number"))
    failed = _failed(states)
    for cause, runs in failed[:8]:
        text = f"{len(runs)} x: {verdict.cause_line(_newest(runs))}\nvastrun why {_newest(runs).id}"
        lines.append((cause, text))
    if failed:
        lines.append(("try", _next(batch)))
    return facts(lines)


def _diverged(rows: Sequence[PointResult]) -> list[int]:
    return sorted(row.point.number for row in rows if row.diverged)


def _ends(states: Sequence[PointState]) -> Counter[str]:
    """Count the points by verdict, `running` or `waiting`."""
    return Counter(str(state.verdict or ("running" if state.is_open else "waiting")) for state in states)


def _failed(states: Sequence[PointState]) -> list[tuple[str, list[Run]]]:
    """Return the last runs of the failed points by cause, the most frequent first."""
    failed: dict[str, list[Run]] = {}
    for state in states:
        if state.has_failed and state.last is not None:
            failed.setdefault(str(state.last.cause or state.last.verdict), []).append(state.last)
    return sorted(failed.items(), key=lambda item: -len(item[1]))


def _newest(runs: Sequence[Run]) -> Run:
    return max(runs, key=lambda run: run.created_at)


def _next(batch: Batch) -> str:
    return f"vastrun batch retry {batch.name}, once the cause is fixed"
