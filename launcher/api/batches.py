"""BatchHandle: a batch, to be waited for, read and stopped; and what the commands do with batches, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vastrun.launcher.api.drivers import Target
from vastrun.launcher.api.session import ApiSession
from vastrun.launcher.batch.plan import BatchPlan
from vastrun.launcher.batch.results import PointResult, results_of, row_in, states_in
from vastrun.launcher.core import Cause, Phase, UserRequest, Verdict
from vastrun.launcher.core.batch import MAX_NAME, Batch
from vastrun.launcher.core.errors import HeldError, UsageError, VastrunError
from vastrun.launcher.decisions.schedule import (
    BatchProgress,
    holding_runs,
)
from vastrun.launcher.outputs.disk import leave_out, storing
from vastrun.launcher.ports import Ledger

if TYPE_CHECKING:
    from vastrun.launcher.config.batch_file import LoadedBatch

_STOPPING = (UserRequest.STOP, UserRequest.DESTROY)


@dataclass(frozen=True, kw_only=True)
class BatchStatus(BatchProgress):
    """Where a batch stands."""

    budget_usd: float | None
    """What all runs together may cost."""
    is_driven: bool
    """A launcher drives it."""
    reason: str
    """Why it ended before its last point; empty otherwise."""


@dataclass(frozen=True, kw_only=True)
class PointRow:
    """What became of one point: a row of the table of results."""

    number: int
    """Counted within the batch, from 1."""
    values: Mapping[str, Any]
    """By key."""
    verdict: Verdict | None
    """None while it has not ended."""
    cause: Cause | None
    """Why it did not succeed."""
    metric: float | None
    """Of the objective; None where it is not known, or not yet."""
    step: int
    hours: float
    """All attempts together, from rent to release."""
    usd: float
    attempts: int
    run: str | None
    """The id of its last attempt; None: it was not started."""
    outputs: Path | None
    """The folder of that one on this computer."""


class BatchHandle:
    """One batch. All of it is read from the ledger and the outputs; a handle may be made anew at any time."""

    def __init__(self, session: ApiSession, name: str) -> None:
        self._session, self._name = session, name
        self._target = Target("batch", name)

    @property
    def name(self) -> str:
        """Its name, by which the command line knows it, too."""
        return self._name

    @property
    def folder(self) -> Path:
        """Where the folders of its runs' outputs lie."""
        return Path(self._session.ledger.batches.get(self.name).folder)

    def status(self) -> BatchStatus:
        """Return where it stands now. Raises StorageError."""
        ledger = self._session.ledger
        row = row_in(ledger, self.name, self._session.now())
        return BatchStatus(
            **vars(row.progress),
            budget_usd=row.batch.spec.limits.usd,
            is_driven=row.is_driven or self._session.is_driving(self._target),
            reason=row.batch.reason,
        )

    def wait(self, timeout: float | None = None) -> list[PointRow]:
        """Wait until each point has ended or nothing more may start, for at most `timeout` seconds.

        Returns the results, the best first. A launcher is started where none drives the batch. An interrupt
        ends the wait, and nothing else. Raises TimeoutError; and what its launcher could not go on with:
        StorageError, AuthError, ... Its machines are then limited by their leases; wait again to go on.
        """
        return self._session.wait(self._look, timeout, f"batch {self.name}")

    def results(self) -> list[PointRow]:
        """Return a row for each point, the best first; also while the batch runs. Raises StorageError."""
        ledger = self._session.ledger
        objective = ledger.batches.get(self.name).spec.objective
        return [_row(row) for row in results_of(states_in(ledger, self.name), objective, self._session.now())]

    def stop(self) -> None:
        """Start nothing more; ask what runs to save, download its outputs and destroy its machine.

        `wait` waits for that. A launcher is started where runs are open and none drives the batch.
        """
        if ask_to_stop(self._session.ledger, self.name):
            self._drive_on()

    def resume(self) -> None:
        """Go on with the batch, also after a stop or a limit; nothing is rented twice. Does not wait."""
        batches = self._session.ledger.batches
        batches.get(self.name)
        batches.reopen(self.name)
        self._drive_on()

    def retry(self, cause: Cause | str | None = None) -> int:
        """Run the points that failed once more, or those that failed with that cause; return how many.

        Does not wait. Raises UsageError when there are none.
        """
        count = run_again(self._session.ledger, self.name, None if cause is None else str(cause))
        self._drive_on()
        return count

    def __repr__(self) -> str:
        try:
            status = self.status()
        except VastrunError:
            return f"<batch {self.name}>"
        ended = status.points - status.waiting - status.running
        return f"<batch {self.name}: {ended}/{status.points} ended, ${status.spent_usd:.3f}>"

    def _drive_on(self) -> None:
        self._session.ended_driver(self._target)  # why that one ended is no news any more
        if not self._session.ledger.batches.is_driven(self.name):
            self._session.drive(self._target)

    def _look(self) -> list[PointRow] | None:
        """Return the results once nothing is left to wait for; until then see to it that somebody drives."""
        if self._session.is_driving(self._target):
            return None
        driver, ledger = self._session.ended_driver(self._target), self._session.ledger
        error = None if driver is None else driver.error()
        if error is not None and not isinstance(error, HeldError):
            raise error
        if ledger.batches.is_driven(self.name):
            return None
        if (driver is not None and error is None) or self._is_over():
            return self.results()
        self._session.drive(self._target)
        return None

    def _is_over(self) -> bool:
        """Return whether a launcher would find nothing to do."""
        batch, states = (
            self._session.ledger.batches.get(self.name),
            states_in(self._session.ledger, self.name),
        )
        if any(state.is_open for state in states) or holds_machines(self._session.ledger, self.name):
            return False
        ends_early = bool(batch.reason) or batch.request in _STOPPING
        may_ask = batch.search is not None and len(states) < batch.search.samples
        return ends_early or not (may_ask or any(state.is_waiting for state in states))


def _row(result: PointResult) -> PointRow:
    run = result.run
    return PointRow(
        number=result.point.number,
        values=result.point.values,
        verdict=result.verdict,
        cause=None if run is None or result.verdict is None else run.cause,
        metric=result.metric,
        step=result.step,
        hours=result.hours,
        usd=result.usd,
        attempts=result.attempts,
        run=None if run is None else run.id,
        outputs=None if run is None else Path(run.out_dir),
    )


def named_for_its_job(ledger: Ledger, loaded: LoadedBatch) -> LoadedBatch:
    """Return the batch under a name that has no other job in the ledger: its own, else NAME-2, NAME-3, …"""
    known = {batch.name for batch in ledger.batches.all()}
    own = loaded.spec.name
    for number in count(1):
        suffix = f"-{number}" if number > 1 else ""
        name = f"{own[: MAX_NAME - len(suffix)]}{suffix}"
        if name not in known or _has_job(ledger, name, loaded.job):
            break
    return replace(loaded, spec=replace(loaded.spec, name=name))


def _has_job(ledger: Ledger, name: str, job: Any) -> bool:
    """Return whether the batch of that name has points of this job, or none at all."""
    from vastrun.launcher.config.batch_file import is_of_job  # slow to import: pydantic, yaml

    points = ledger.batches.points(name)
    return not points or any(is_of_job(point, job) for point in points)


def submit(ledger: Ledger, plan: BatchPlan, folder: Path, now: float, computer: str) -> tuple[Batch, int]:
    """Write the batch into the ledger; return it, and how many of its points are new.

    `computer`: the one that `folder` is on, as `Run.computer`. Raises UsageError, and StorageError for a
    folder that cannot be made.
    """
    batch = Batch(
        name=plan.spec.name,
        spec=plan.spec,
        provider=plan.provider,
        folder=str(folder),
        created_at=now,
        opened_at=now,
        search=plan.search,
        computer=computer,
        home=computer,
    )
    new = ledger.batches.submit(batch, plan.points)
    batch = ledger.batches.get(batch.name)
    # Before the first of its runs is packed: their outputs may come to lie in the folder of the code.
    if batch.computer == computer:
        with storing(Path(batch.folder)):
            leave_out(Path(batch.folder))
    return batch, new


def must_fit(ledger: Ledger, plan: BatchPlan, folder: Path) -> None:
    """Return when a batch may begin; of one that is known, all points may have ended: it always may.

    Raises UsageError for a folder that holds other files, BudgetError for a budget without room for one run.
    """
    if any(batch.name == plan.spec.name for batch in ledger.batches.all()):
        return
    try:
        holds_files = folder.exists() and any(folder.iterdir())
    except OSError as error:
        raise UsageError(f"cannot read {folder}: {error.strerror}") from error
    if holds_files:
        raise UsageError(f"{folder} holds other files", hint="--out ANOTHER_FOLDER, or another name:")
    if plan.refusals:
        raise plan.refusals[0]


def ask_to_stop(ledger: Ledger, name: str) -> int:
    """Ask for the end of a batch and of its open runs, of whoever drives them; return how many are open."""
    ledger.batches.get(name)
    ledger.batches.ask(name, UserRequest.STOP)
    open_runs = [run for run in ledger.runs(batch=name) if run.phase is not Phase.ENDED]
    for run in open_runs:
        ledger.ask(run.id, UserRequest.STOP)
    return len(open_runs)


def run_again(ledger: Ledger, name: str, cause: str | None) -> int:
    """Let the points that failed, with that cause, be started once more; return how many.

    Raises UsageError when there are none.
    """
    ledger.batches.get(name)
    failed = [
        state.point.id
        for state in states_in(ledger, name)
        if state.has_failed and state.last is not None and cause in (None, state.last.cause)
    ]
    if not failed:
        with_it = f" with {cause}" if cause else ""
        raise UsageError(f"no point of {name} has failed{with_it}", hint=f"vastrun batch results {name}")
    ledger.batches.again(name, failed)
    return len(failed)


def holds_machines(ledger: Ledger, name: str) -> bool:
    """Return whether a machine is held for the batch, or is not seen to be gone yet."""
    return bool(holding_runs(ledger.runs(open_only=True, batch=name)))
