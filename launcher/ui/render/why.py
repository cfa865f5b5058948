"""`why` in text: verdict, cause, proofs, the first failing rank, a hang's frame, what to try next."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from launcher.commands.queries import Explanation, RunRow
from launcher.core import Cause, Phase, Proof, StepEnd
from launcher.decisions.advice import advice_for
from launcher.gate.text import one_line
from launcher.ui.render.amounts import duration, moment
from launcher.ui.render.left_out import left_out_lines
from launcher.ui.render.summary import proof_lines, verdict_line
from launcher.ui.render.table import facts, short, table
from trainer.contract.outcome import Outcome, RankEnd


def explanation_text(explanation: Explanation, width: int | None = None) -> str:
    """Show everything that speaks for and against. `width`: of the terminal."""
    run, outcome = explanation.row.run, explanation.outcome
    parts = [
        facts(
            [
                ("run", f"{run.id} ({run.job})"),
                ("verdict", verdict_line(explanation.row)),
                ("first", _first_failure(outcome)),
                ("node", _node(explanation.row)),
                ("hang", _hang(explanation)),
                ("starts", _starts(outcome)),
                ("last", _last(explanation)),
                ("steps", _steps(explanation.steps)),
                ("proofs", proof_lines(run.proofs)),
            ]
        )
    ]
    if run.cause is Cause.CONTRADICTION:
        parts.append(_side_by_side(explanation.says_success, explanation.says_otherwise, width))
    if outcome is not None and outcome.first_failure and _said(outcome.first_failure):
        parts.append(_last_words(outcome.first_failure))
    parts.append(
        facts(
            [
                ("outputs", run.out_dir),
                ("left out", left_out_lines(explanation.left_out)),
                (
                    "try",
                    advice_for(run, checkpoint=explanation.checkpoint, not_shipped=explanation.not_shipped),
                ),
            ]
        )
    )
    return "\n\n".join(parts)


def _first_failure(outcome: Outcome | None) -> str:
    """Which rank failed first, and of what."""
    if outcome is None or outcome.first_failure is None:
        return ""
    rank = outcome.first_failure
    how = rank.signal or rank.exception or f"exit code {rank.exit_code}"
    return f"rank {rank.rank}: {how}{_where(rank.step, rank.activity)}"


def _node(row: RunRow) -> str:
    """Which machine of several it came from, and where its evidence lies."""
    run = row.run
    if run.failed_node is None:
        return ""
    theirs = [one for one in row.machines if one.node == run.failed_node]
    # Of the machines that a node had one after the other: that which ended so, else its last.
    of_it = next((one for one in theirs if one.detail == run.detail), theirs[-1])
    return f"{run.failed_node}; its log and evidence: {of_it.out_dir}"


def _where(step: int, activity: str) -> str:
    """Of a program that does not say where it is, nothing."""
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
    """How each start of the ranks on the machine ended, when there was more than one."""
    lines = [
        f"{number}: {duration(a.ended_at - a.started_at)}"
        f"{f' to step {a.steps_done}' if a.steps_done else ''}, {a.world_size} ranks, {a.reason}: {a.detail}"
        for number, a in enumerate(outcome.starts if outcome else (), start=1)
    ]
    return "\n".join(lines) if len(lines) > 1 else ""


def _steps(ends: Sequence[StepEnd]) -> str:
    """A step of the box a line: exit code, name, how long it took."""
    width = max((len(end.step) for end in ends), default=0)
    return "\n".join(f"{end.exit_code:<7}  {end.step:<{width}}  {duration(end.seconds)}" for end in ends)


def _last(explanation: Explanation) -> str:
    """What the diary said last, for a run without a verdict or without evidence."""
    event = explanation.last_event
    if event is None or (explanation.row.run.phase is Phase.ENDED and explanation.outcome is not None):
        return ""
    return f"{moment(event.at)} {event.phase.value}: {one_line(event.text)}"


def _side_by_side(left: tuple[Proof, ...], right: tuple[Proof, ...], width: int | None) -> str:
    half = None if width is None else (width - 2) // 2
    cells = [
        tuple(short(proof.text if proof else "", half) for proof in pair) for pair in zip_longest(left, right)
    ]
    return table(("SAYS SUCCESS", "SAYS OTHERWISE"), cells)


def _said(rank: RankEnd) -> str:
    """Return the rank's traceback, or what it printed last."""
    return rank.traceback or rank.last_lines or ""


def _last_words(rank: RankEnd) -> str:
    lines = _said(rank).rstrip().split("\n")
    return "\n".join([f"rank {rank.rank} said:", *(f"  {line}" for line in lines)])
