"""RunHandle: wait for a run, read its result, stop it; and functions that start and stop runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from vastrun.contract import layout
from vastrun.launcher.api.drivers import Target
from vastrun.launcher.api.results import RunResult, RunStatus, data_frame, run_text
from vastrun.launcher.api.session import ApiSession
from vastrun.launcher.commands.attempts import Attempts
from vastrun.launcher.commands.chains import chain_of, is_retry_missing, lineage_of
from vastrun.launcher.commands.explanation import explain
from vastrun.launcher.commands.logfeed import Feed, feed_of
from vastrun.launcher.commands.queries import row_of
from vastrun.launcher.core import Event, Phase, Run, UserRequest
from vastrun.launcher.core.bills import cost_usd
from vastrun.launcher.core.errors import HeldError, UsageError, VastrunError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.verdict import EXIT_TEARDOWN_NOT_CONFIRMED
from vastrun.launcher.gate.metrics import parse_records
from vastrun.launcher.gate.text import printable
from vastrun.launcher.outputs.folder import Outputs
from vastrun.launcher.outputs.index import metric_lines
from vastrun.launcher.ports import Ledger
from vastrun.launcher.ui.render.loglines import LogFilter, LogLine, chosen, lines_of, shown
from vastrun.launcher.ui.render.why import explanation_text

POLL_INTERVAL_S = 0.5
"""Seconds between two reads of a log that grows."""


class RunHandle:
    """One run, read from the ledger and its outputs; handles hold no state.

    If the job's `retry:` started further attempts, everything but `id` is about the newest of them.
    Text from a machine has no control characters: it is safe to print.
    """

    def __init__(self, session: ApiSession, run_id: str) -> None:
        self._session, self._id = session, run_id

    @property
    def id(self) -> str:
        """Id of the run, as on the command line."""
        return self._id

    def status(self) -> RunStatus:
        """Return its current status. Raises StorageError."""
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
            machine_state=row.machine_state,
        )

    def wait(self, timeout: float | None = None) -> RunResult:
        """Wait at most `timeout` seconds for its end, retries included; return the result.

        The verdict is in the result and is not raised. Starts a launcher if none drives the run. An interrupt
        ends only the wait. Raises TimeoutError, and the error that ended its launcher: StorageError,
        AuthError, ... Its machine is then limited by its lease; wait again to continue.
        """
        return self._session.wait(self._poll, timeout, f"run {self.id}")

    def watch(self, timeout: float | None = None) -> RunResult:
        """Wait as `wait`, with the progress as a line on stderr."""
        return self._session.watch(self._poll, timeout, f"run {self.id}", self)

    def result(self) -> RunResult:
        """Return how it ended, or its state while it is open. Does not wait. Raises StorageError."""
        return self._result(self._newest())

    def logs(
        self, follow: bool = False, *, rank: int | None = None, tail: int | None = None
    ) -> Iterator[LogLine]:
        """Yield the lines of its log: onstart steps, supervisor and all ranks, or one rank.

        `tail`: only this number of existing lines. `follow`: continue until the run has ended.
        Raises StorageError, and as `wait` the error that ended its launcher.
        """
        run = self._newest()
        feed = feed_of(run, self._session.ledger, self._session.app.provider(run.provider))
        choice, clock = LogFilter(rank=rank), self._session.app.interrupts()

        def sleep(seconds: float) -> None:
            self._launcher_has_ended(self._attempts())
            clock.sleep(seconds)

        lines = chosen(written_lines(feed), choice, tail=tail)
        yield from map(_shown, lines)
        if follow:
            yield from map(_shown, chosen(new_lines(feed, sleep), choice))

    def metrics(self) -> list[dict[str, float]]:
        """Return the metrics downloaded so far: for each line the step, and numbers by name.

        Values that are not finite numbers are left out; beyond 400,000 values, lines are left out evenly.
        """
        with suppress(FileNotFoundError):
            return parse_records(metric_lines(Outputs(self._newest()).path(layout.METRICS)))
        return []

    def to_dataframe(self) -> Any:
        """Return the metrics as a pandas.DataFrame: a row for each step. Raises UsageError without pandas."""
        return data_frame(self.metrics(), ["step"])

    def why(self) -> str:
        """Return the text of `vastrun why`: cause, proofs, first failing rank, what to try next."""
        return printable(explanation_text(explain(self._session.ledger, self._newest(), self._session.now())))

    def stop(self, *, now: bool = False, reason: str = "") -> None:
        """Request its end: save a checkpoint, download the outputs, destroy the machine; `wait` waits for it.

        `now`: destroy the machine at once, without the outputs. `reason` is recorded in its events. Starts a
        launcher if none drives the run. Raises UsageError if it has already ended.
        """
        run = self._newest()
        request_end(self._session.ledger, run, self._session.now(), at_once=now, reason=reason)
        self.resume()

    def resume(self) -> None:
        """Start a launcher if none drives the run, as after one was killed or detached. Does not wait."""
        for run in self._attempts():
            self._session.pop_ended_driver(_target(run))  # drop its error: a new driver starts
        self._poll()

    def __str__(self) -> str:
        try:
            loss = Outputs(self._newest()).newest_metrics().get("loss")
            return f"run {self.id}: {run_text(self.status(), loss)}"
        except VastrunError:
            return f"run {self.id}"

    def __repr__(self) -> str:
        return f"<{self}>"

    def _newest(self) -> Run:
        return self._attempts()[-1]

    def _attempts(self) -> list[Run]:
        return attempts_from(self._session.ledger, self._session.ledger.get(self.id))

    def _is_driven_here(self, attempts: Sequence[Run]) -> bool:
        return any(self._session.is_driving(_target(run)) for run in attempts)

    def _poll(self) -> RunResult | None:
        """Return the result once the run has ended; until then None, with a launcher started if needed."""
        attempts, ledger = self._attempts(), self._session.ledger
        if self._is_driven_here(attempts):
            return None
        has_driven = self._launcher_has_ended(attempts)
        run = self._newest()  # a retry may have started since
        if run.phase is Phase.ENDED and (
            has_driven or not is_retry_missing(ledger, run, self._session.now())
        ):
            return self._result(run)
        if run.phase is Phase.DESTROY and has_driven:  # its launcher gave up: the user must know
            return self._result(run)
        if ledger.driver(run.id) is None:
            self._session.drive(_target(run))
        return None

    def _launcher_has_ended(self, attempts: Sequence[Run]) -> bool:
        """Return whether a launcher of this session has ended. Raises the error that ended it."""
        ended = [self._session.pop_ended_driver(_target(run)) for run in attempts]
        errors = [driver.error() for driver in ended if driver is not None]
        error = next((error for error in errors if error is not None), None)
        if error is None:
            return bool(errors)
        has_ended = self._newest().phase is Phase.ENDED
        if not has_ended and not isinstance(error, HeldError):
            raise error
        return has_ended

    def _result(self, run: Run) -> RunResult:
        ledger, now, outputs = self._session.ledger, self._session.now(), Outputs(run)
        attempts, outcome = [row_of(ledger, one, now) for one in lineage_of(ledger, run)], outputs.outcome()
        code = run.exit_code()
        known = run.phase is Phase.ENDED or code == EXIT_TEARDOWN_NOT_CONFIRMED
        return RunResult(
            id=run.id,
            verdict=run.verdict,
            cause=run.cause,
            detail=printable(run.detail),
            exit_code=code if known else None,
            step=run.step,
            cost=attempts[-1].cost,
            usd=sum(attempt.usd for attempt in attempts),
            scores=(outcome.scores if outcome else None) or {},
            proofs=tuple(replace(proof, text=printable(proof.text)) for proof in run.proofs),
            outputs=Path(run.out_dir),
            checkpoint=outputs.checkpoints,
            attempts=tuple(attempt.run.id for attempt in attempts),
        )


def _shown(line: LogLine) -> LogLine:
    return replace(line, source=shown(line.source), text=shown(line.text))


def _target(run: Run) -> Target:
    return Target("run", run.id)


def attempts_from(ledger: Ledger, run: Run) -> list[Run]:
    """Return this run and the attempts that followed it, oldest first."""
    attempts = [run]
    while run.phase is Phase.ENDED:
        later = ledger.runs(parent=run.id)
        tries = [one for one in later if run.id in [each.id for each in chain_of(ledger, one)]]
        if not tries:
            break
        run = tries[0]
        attempts.append(run)
    return attempts


def find_open_target(ledger: Ledger, target: Target, now: float) -> Target | None:
    """Return the target if it is open, for a run its newest attempt; None if nothing is left to drive."""
    try:
        if target.kind == "batch":
            ledger.batches.get(target.name)
            return target
        run = attempts_from(ledger, ledger.get(target.name))[-1]
    except UsageError:  # its row is gone
        return None
    nodes = ledger.runs(leader=run.id)
    is_open = any(one.phase is not Phase.ENDED for one in (run, *nodes)) or is_retry_missing(ledger, run, now)
    return Target("run", run.id) if is_open else None


def is_driven(ledger: Ledger, target: Target) -> bool:
    """Return whether a launcher drives the target now."""
    if target.kind == "batch":
        return ledger.batches.is_driven(target.name)
    return ledger.driver(attempts_from(ledger, ledger.get(target.name))[-1].id) is not None


def start_run(
    attempts: Attempts,
    spec: JobSpec,
    *,
    provider: str,
    run_id: str,
    out: Path | None,
    parent: Run | None = None,
) -> Run:
    """Write a run into the ledger, with its outputs in `out` or in `runs/RUN`. Raises as `start`."""
    folder = str((out or Path("runs") / run_id).resolve())
    return attempts.start(spec, provider=provider, run_id=run_id, out_dir=folder, parent=parent)


def request_end(ledger: Ledger, run: Run, now: float, *, at_once: bool, reason: str) -> None:
    """Request a run's end from its launcher. Raises UsageError if it has already ended."""
    if run.phase is Phase.ENDED:
        raise UsageError(f"{run.id} has already ended", hint=f"vastrun why {run.id}")
    what = "the immediate destruction of the machine" if at_once else "a stop"
    text = f"the user requested {what}" + (f": {reason}" if reason else "")
    ledger.add_event(Event(run_id=run.id, at=now, phase=run.phase, text=text, usd=cost_usd(run, now)))
    ledger.ask(run.id, UserRequest.DESTROY if at_once else UserRequest.STOP)


def written_lines(feed: Feed) -> Iterator[str]:
    """Yield every line written so far."""
    while text := feed.more():
        yield from lines_of(text)


def new_lines(feed: Feed, sleep: Callable[[float], None]) -> Iterator[str]:
    """Yield new lines until the log is complete."""
    while not feed.is_finished:
        sleep(POLL_INTERVAL_S)
        yield from lines_of(feed.more())
