"""What `batch` and `sweep` share: the plan shown and confirmed, the batch driven to its end, its table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from launcher.batch.pricing import BatchPlan, price
from launcher.batch.results import metric_of, results_of
from launcher.cli.options import confirm, must_ship
from launcher.cli.output import say, show, width
from launcher.config import read_job
from launcher.core import UserRequest, Verdict
from launcher.core.batch import Batch, BatchSpec, Point
from launcher.core.errors import UsageError
from launcher.core.verdict import EXIT_CODE_OF
from launcher.decisions.estimates import usd
from launcher.decisions.schedule import PointState, Standing, states_of
from launcher.ui.render.batch import (
    ended_text,
    plan_document,
    plan_text,
    results_document,
    results_text,
    standing_text,
)
from launcher.ui.screen import StreamScreen
from launcher.wiring import Wiring


@dataclass(frozen=True, kw_only=True)
class Submission:
    """What a command line asks for besides the batch itself."""

    provider: str
    out: Path | None
    dry_run: bool
    yes: bool
    as_json: bool


def submit(
    wiring: Wiring, spec: BatchSpec, points: Sequence[Point], file: Path, submission: Submission
) -> int:
    """Price the batch, ask, write it into the ledger and drive it; return the exit code."""
    must_ship(wiring, read_job(points[0].spec_json), file)
    market, ledger = wiring.provider(submission.provider), wiring.ledger()
    now = wiring.now()
    plan = price(spec, points, market, ledger, now, wiring.budgets(now))
    if submission.dry_run:
        show(plan_document(plan), plan_text(plan), as_json=submission.as_json)
        return 0
    folder = (submission.out or Path("batches") / spec.name).resolve()
    is_known = any(batch.name == spec.name for batch in ledger.batches.all())
    if not is_known:
        _must_be_free(folder)
    if plan.refusals and not is_known:  # of a known batch, all points may have ended
        raise plan.refusals[0]
    if not market.free:
        confirm(_question(plan), yes=submission.yes)
    now = wiring.now()
    batch = Batch(
        name=spec.name,
        spec=spec,
        provider=plan.provider,
        folder=str(folder),
        created_at=now,
        opened_at=now,
    )
    new = ledger.batches.submit(batch, plan.points)
    batch = ledger.batches.get(spec.name)
    say(
        f"batch {batch.name}: {new} of {len(plan.points)} points are new, outputs in {batch.folder}", err=True
    )
    return drive(wiring, batch.name, as_json=submission.as_json)


def drive(wiring: Wiring, name: str, *, as_json: bool) -> int:
    """Drive the batch to its end and print its results; return the exit code."""
    interrupts = wiring.interrupts(UserRequest.NONE, UserRequest.NONE, None, False)
    screen = wiring.screen(wiring.now())
    try:
        with interrupts.listening():
            states = wiring.drive_batch(name, interrupts, BatchLines(screen))
    finally:
        screen.close()
    batch = wiring.ledger().batches.get(name)
    show_results(wiring, batch, states, as_json=as_json)
    if batch.reason:
        say(f"not all points were started: {batch.reason}\ntry:   vastrun batch resume {name}", err=True)
    if interrupts.current() is UserRequest.DETACH:
        say(f"its runs continue under their leases; go on: vastrun batch resume {name}", err=True)
    return exit_code(batch, states, interrupts.current())


def show_results(wiring: Wiring, batch: Batch, states: Sequence[PointState], *, as_json: bool) -> None:
    """Print what each point came to, the best first."""
    rows = results_of(states, batch.spec.objective, wiring.now())
    show(results_document(rows, batch), results_text(rows, batch.spec, width()), as_json=as_json)


def exit_code(batch: Batch, states: Sequence[PointState], request: UserRequest) -> int:
    """Return 0 when every point succeeded; else 3 stopped, 9 a limit ended it, 5 a point failed."""
    wanted = [state for state in states if state.point.wanted]
    if all(state.verdict is Verdict.SUCCEEDED for state in wanted) or request is UserRequest.DETACH:
        return 0
    if UserRequest.STOP.strength <= max(request.strength, batch.request.strength):
        return EXIT_CODE_OF[Verdict.STOPPED]
    return EXIT_CODE_OF[Verdict.LIMIT if batch.reason else Verdict.FAILED]


def states_in(wiring: Wiring, name: str) -> list[PointState]:
    """Return the points of a batch with their runs, by number."""
    ledger = wiring.ledger()
    return states_of(ledger.batches.points(name), ledger.runs(batch=name))


class BatchLines:
    """The screen of a batch: a line for each point that ended, and one that is overwritten."""

    def __init__(self, screen: StreamScreen) -> None:
        self._screen = screen

    def ended(self, state: PointState, batch: Batch) -> None:
        """Print how a point ended."""
        metric = batch.spec.objective.metric
        value = None if state.last is None else metric_of(state.last, metric)
        self._screen.step("point", ended_text(state, metric, value))

    def standing(self, standing: Standing, batch: Batch) -> None:
        """Print how the batch stands."""
        self._screen.gauge(standing_text(standing, batch.spec.limits.usd))

    def note(self, text: str) -> None:
        """Print a line."""
        self._screen.note(text)


def _question(plan: BatchPlan) -> str:
    count = len(plan.points)
    points = f"{count:,} point{'' if count == 1 else 's'}"
    return f"run {points} on {plan.provider} for at most {usd(plan.spec.limits.usd or 0.0)}"


def _must_be_free(folder: Path) -> None:
    """Raise UsageError where a batch that is new would write into a folder that holds other files."""
    try:
        holds_files = folder.exists() and any(folder.iterdir())
    except OSError as error:
        raise UsageError(f"cannot read {folder}: {error.strerror}") from error
    if holds_files:
        raise UsageError(f"{folder} holds other files", hint="--out ANOTHER_FOLDER, or another name:")


def reads_text(path: Path, what: str) -> str:
    """Return a file's text. Raises click's own error when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise click.BadParameter(f"cannot read {path}: {reason}", param_hint=what) from error
