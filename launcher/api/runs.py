"""RunHandle: one run, to be waited for, read and stopped; and how a run is begun and asked to end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from vastrun.contract import layout
from vastrun.launcher.api.drivers import Target
from vastrun.launcher.api.logs import growing, written
from vastrun.launcher.api.session import ApiSession
from vastrun.launcher.commands.attempts import Attempts
from vastrun.launcher.commands.chains import attempt_after, chain_of, is_retry_missing
from vastrun.launcher.commands.logfeed import feed_of
from vastrun.launcher.commands.queries import ending_of, explain, row_of
from vastrun.launcher.core import Cause, Cost, Event, Phase, Proof, Run, UserRequest, Verdict
from vastrun.launcher.core.bills import cost_usd
from vastrun.launcher.core.errors import HeldError, UsageError, VastrunError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.verdict import EXIT_TEARDOWN_NOT_CONFIRMED
from vastrun.launcher.gate.metrics import parse_records
from vastrun.launcher.gate.text import printable
from vastrun.launcher.outputs.folder import Outputs
from vastrun.launcher.outputs.index import metric_lines
from vastrun.launcher.ports import Ledger
from vastrun.launcher.ui.render.loglines import LogFilter, LogLine, chosen, shown
from vastrun.launcher.ui.render.why import explanation_text


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """Where a run stands, by the ledger."""

    phase: Phase
    verdict: Verdict | None
    """None while it is open."""
    step: int
    steps: int
    """The last one; 0 while it is not known."""
    usd: float
    """So far, or in all; of this attempt."""
    usd_per_hour: float
    is_driven: bool
    """A launcher drives it."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """How a run ended, or how it stands while it is open."""

    id: str
    """Of its last attempt."""
    verdict: Verdict | None
    """None while it is open."""
    cause: Cause | None
    """Why it did not succeed."""
    detail: str
    exit_code: int | None
    """As of `vastrun launch`: 11 while a machine may still be rented; else None while it is open."""
    step: int
    cost: Cost
    """Of the last attempt."""
    usd: float
    """Of all attempts together."""
    scores: Mapping[str, float]
    """Of the final evaluation, by name; empty without one."""
    proofs: tuple[Proof, ...]
    """What the verdict rests on."""
    outputs: Path
    """The folder on this computer."""
    checkpoint: Path | None
    """The folder of checkpoints; None when no complete one came home."""
    attempts: tuple[str, ...]
    """The ids of all of them, oldest first."""

    @property
    def succeeded(self) -> bool:
        """Whether every proof of success is there and holds."""
        return self.verdict is Verdict.SUCCEEDED


class RunHandle:
    """One run. All of it is read from the ledger and from its outputs; a handle may be made anew at any time.

    Where the job's `retry:` began further attempts, everything but `id` is about the newest of them.
    What a machine said is without control characters: it may be printed.
    """

    def __init__(self, session: ApiSession, run_id: str) -> None:
        self._session, self._id = session, run_id

    @property
    def id(self) -> str:
        """Its id, by which the command line knows it, too."""
        return self._id

    def status(self) -> RunStatus:
        """Return where it stands now. Raises StorageError."""
        attempts = self._attempts()
        run = attempts[-1]
        row = row_of(self._session.ledger, run, self._session.now())
        return RunStatus(
            phase=run.phase,
            verdict=run.verdict,
            step=run.step,
            steps=run.steps,
            usd=row.usd,
            usd_per_hour=row.usd_per_hour,
            is_driven=row.driver is not None or self._is_driven_here(attempts),
        )

    def wait(self, timeout: float | None = None) -> RunResult:
        """Wait for its end, retries included, for at most `timeout` seconds; return how it ended.

        The verdict is in the result and is not raised. A launcher is started where none drives the run. An
        interrupt ends the wait, and nothing else. Raises TimeoutError; and what its launcher could not go on
        with: StorageError, AuthError, ... Its machine is then limited by its lease; wait again to go on.
        """
        return self._session.wait(self._look, timeout, f"run {self.id}")

    def result(self) -> RunResult:
        """Return how it ended; of an open run, how it stands. Does not wait. Raises StorageError."""
        return self._result(self._newest())

    def logs(
        self, follow: bool = False, *, rank: int | None = None, tail: int | None = None
    ) -> Iterator[LogLine]:
        """Yield the lines of its log: of the onstart steps, the supervisor and all ranks, or of one rank.

        `tail`: only the last ones of those that are there. `follow`: goes on until the run has ended.
        Raises StorageError; and as `wait` where its launcher could not go on.
        """
        run = self._newest()
        feed = feed_of(run, self._session.ledger, self._session.wiring.provider(run.provider))
        choice, clock = LogFilter(rank=rank), self._session.wiring.clock()

        def sleep(seconds: float) -> None:
            self._has_done_its_work(self._attempts())
            clock.sleep(seconds)

        lines = chosen(written(feed), choice, tail=tail)
        yield from map(_shown, lines)
        if follow:
            yield from map(_shown, chosen(growing(feed, sleep), choice))

    def metrics(self) -> list[dict[str, float]]:
        """Return what it measured, as far as it has come home: for each line the step, and numbers by name.

        Values that are no finite numbers are left out; of more than 400,000 values whole lines are, evenly.
        Empty before the first has come home.
        """
        with suppress(FileNotFoundError):
            return parse_records(metric_lines(Outputs(self._newest()).path(layout.METRICS)))
        return []

    def why(self) -> str:
        """Return the text of `vastrun why`: cause, proofs, first failing rank, what to try next."""
        return printable(explanation_text(explain(self._session.ledger, self._newest(), self._session.now())))

    def stop(self, *, now: bool = False, reason: str = "") -> None:
        """Ask it to save a checkpoint, download the outputs and destroy its machine; `wait` waits for that.

        `now`: the machine is destroyed at once, without the outputs. `reason` is noted in its events. A
        launcher is started where none drives the run. Raises UsageError when it has ended already.
        """
        run = self._newest()
        ask_to_end(self._session.ledger, run, self._session.now(), at_once=now, reason=reason)
        self.resume()

    def resume(self) -> None:
        """Start a launcher for it where none drives it: after one was killed, or detached. Does not wait."""
        for run in self._attempts():
            self._session.ended_driver(_target(run))  # why that one ended is no news any more
        self._look()

    def __repr__(self) -> str:
        try:
            status = self.status()
        except VastrunError:
            return f"<run {self.id}>"
        return f"<run {self.id}: {status.verdict or status.phase}, step {status.step}, ${status.usd:.3f}>"

    def _newest(self) -> Run:
        return self._attempts()[-1]

    def _attempts(self) -> list[Run]:
        return attempts_from(self._session.ledger, self._session.ledger.get(self.id))

    def _is_driven_here(self, attempts: Sequence[Run]) -> bool:
        return any(self._session.is_driving(_target(run)) for run in attempts)

    def _look(self) -> RunResult | None:
        """Return the result once nothing is left to wait for; until then see to it that somebody drives."""
        attempts, ledger = self._attempts(), self._session.ledger
        if self._is_driven_here(attempts):
            return None
        has_driven = self._has_done_its_work(attempts)
        run = self._newest()  # it may have moved on since
        if run.phase is Phase.ENDED and (
            has_driven or not is_retry_missing(ledger, run, self._session.now())
        ):
            return self._result(run)
        if run.phase is Phase.DESTROY and has_driven:  # it has tried for long: that is for the user to know
            return self._result(run)
        if ledger.driver(run.id) is None:
            self._session.drive(_target(run))
        return None

    def _has_done_its_work(self, attempts: Sequence[Run]) -> bool:
        """Return whether a launcher of ours has ended since. Raises what it could not go on with."""
        ended = [self._session.ended_driver(_target(run)) for run in attempts]
        errors = [driver.error() for driver in ended if driver is not None]
        error = next((error for error in errors if error is not None), None)
        if error is None:
            return bool(errors)
        has_ended = self._newest().phase is Phase.ENDED
        if not has_ended and not isinstance(error, HeldError):
            raise error
        return has_ended

    def _result(self, run: Run) -> RunResult:
        ledger = self._session.ledger
        ending = ending_of(ledger, run, chain_of(ledger, run), self._session.now())
        code = run.exit_code()
        known = run.phase is Phase.ENDED or code == EXIT_TEARDOWN_NOT_CONFIRMED
        return RunResult(
            id=run.id,
            verdict=run.verdict,
            cause=run.cause,
            detail=printable(run.detail),
            exit_code=code if known else None,
            step=run.step,
            cost=ending.row.cost,
            usd=sum(attempt.usd for attempt in ending.attempts),
            scores=ending.scores,
            proofs=tuple(replace(proof, text=printable(proof.text)) for proof in run.proofs),
            outputs=Path(run.out_dir),
            checkpoint=Outputs(run).checkpoints,
            attempts=tuple(attempt.run.id for attempt in ending.attempts),
        )


def _shown(line: LogLine) -> LogLine:
    return replace(line, source=shown(line.source), text=shown(line.text))


def _target(run: Run) -> Target:
    return Target("run", run.id)


def attempts_from(ledger: Ledger, run: Run) -> list[Run]:
    """Return this run and the attempts that followed it, oldest first."""
    attempts = [run]
    while run.phase is Phase.ENDED and (following := attempt_after(ledger, run)) is not None:
        run = following
        attempts.append(run)
    return attempts


def begin(
    attempts: Attempts, spec: JobSpec, *, provider: str, run_id: str, out: Path | None, parent: Run | None
) -> Run:
    """Write a run into the ledger, its outputs to come to `out`, else to `runs/RUN`. Raises as `start`."""
    folder = str((out or Path("runs") / run_id).resolve())
    return attempts.start(spec, provider=provider, run_id=run_id, out_dir=folder, parent=parent)


def ask_to_end(ledger: Ledger, run: Run, now: float, *, at_once: bool, reason: str) -> None:
    """Ask for a run's end, of whoever drives it. Raises UsageError when it has ended already."""
    if run.phase is Phase.ENDED:
        raise UsageError(f"{run.id} has ended already", hint=f"vastrun why {run.id}")
    what = "its immediate destruction" if at_once else "a stop"
    text = f"the user asked for {what}" + (f": {reason}" if reason else "")
    ledger.add_event(Event(run_id=run.id, at=now, phase=run.phase, text=text, usd=cost_usd(run, now)))
    ledger.ask(run.id, UserRequest.DESTROY if at_once else UserRequest.STOP)
