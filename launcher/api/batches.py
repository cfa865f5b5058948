"""BatchHandle: wait for a batch, read its results, stop it; and functions shared with the commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from vastrun.launcher.api.drivers import Target
from vastrun.launcher.api.jobs import check_upload, check_values_used
from vastrun.launcher.api.results import BatchResults, BatchStatus, PointRow, batch_text
from vastrun.launcher.api.session import ApiSession
from vastrun.launcher.app import App
from vastrun.launcher.batch.plan import BatchPlan, pack_code, price, rename_for_job
from vastrun.launcher.batch.results import PointResult, results_of, row_in, states_in
from vastrun.launcher.batch.schedule import holding_runs
from vastrun.launcher.batch.search import first_points
from vastrun.launcher.config import read_job
from vastrun.launcher.core import NOTHING, Cause, Phase, UserRequest
from vastrun.launcher.core.errors import HeldError, UsageError, VastrunError
from vastrun.launcher.ports import Ledger

if TYPE_CHECKING:
    from vastrun.launcher.config.batch_file import LoadedBatch


class BatchHandle:
    """One batch, read from the ledger and the outputs; handles hold no state."""

    def __init__(self, session: ApiSession, name: str) -> None:
        self._session, self._name = session, name
        self._target = Target("batch", name)

    @property
    def name(self) -> str:
        """Name of the batch, as on the command line."""
        return self._name

    @property
    def folder(self) -> Path:
        """Folder with the outputs of its runs."""
        return Path(self._session.ledger.batches.get(self.name).folder)

    def status(self) -> BatchStatus:
        """Return its current progress. Raises StorageError."""
        row = row_in(self._session.ledger, self.name, self._session.now())
        return BatchStatus(
            **vars(row.progress),
            budget_usd=row.batch.spec.limits.usd,
            is_driven=row.is_driven or self._session.is_driving(self._target),
            reason=row.batch.reason,
        )

    def wait(self, timeout: float | None = None) -> BatchResults:
        """Wait at most `timeout` seconds until each point has ended or cannot start.

        Returns the results, the best first. Starts a launcher if none drives the batch. An interrupt ends
        only the wait. Raises TimeoutError, and the error that ended its launcher: StorageError, AuthError,
        ... Its machines are then limited by their leases; wait again to continue.
        """
        return self._session.wait(self._poll, timeout, f"batch {self.name}")

    def watch(self, timeout: float | None = None) -> BatchResults:
        """Wait as `wait`, with the progress as a line on stderr."""
        return self._session.watch(self._poll, timeout, f"batch {self.name}", self)

    def results(self) -> BatchResults:
        """Return a row for each point, the best first, also while the batch runs. Raises StorageError."""
        ledger = self._session.ledger
        objective = ledger.batches.get(self.name).spec.objective
        found = results_of(states_in(ledger, self.name), objective, self._session.now())
        return BatchResults(map(_row, found))

    def stop(self) -> None:
        """Start no further points; stop the runs: save checkpoints, download outputs, destroy machines.

        Does not wait. Starts a launcher if runs are open and none drives the batch.
        """
        if request_stop(self._session.ledger, self.name):
            self._ensure_driven()

    def resume(self) -> None:
        """Continue the batch, also after a stop or a limit; nothing is rented twice. Does not wait."""
        batches = self._session.app.driver_ledger().batches
        batches.get(self.name)
        batches.reopen(self.name)
        self._ensure_driven()

    def retry(self, cause: Cause | str | None = None) -> int:
        """Retry the failed points, or those with this cause; return their number.

        Does not wait. Raises UsageError if there are none.
        """
        count = retry_points(self._session.app.driver_ledger(), self.name, cause)
        self._ensure_driven()
        return count

    def __str__(self) -> str:
        try:
            return f"batch {self.name}: {batch_text(self.status())}"
        except VastrunError:
            return f"batch {self.name}"

    def __repr__(self) -> str:
        return f"<{self}>"

    def _ensure_driven(self) -> None:
        self._session.pop_ended_driver(self._target)  # drop its error: a new driver starts
        if not self._session.ledger.batches.is_driven(self.name):
            self._session.drive(self._target)

    def _poll(self) -> BatchResults | None:
        """Return the results once the batch has ended; until then None, with a launcher started if needed."""
        if self._session.is_driving(self._target):
            return None
        driver, ledger = self._session.pop_ended_driver(self._target), self._session.ledger
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
        """Return whether nothing is left for a launcher to do."""
        ledger = self._session.ledger
        batch, states = ledger.batches.get(self.name), states_in(ledger, self.name)
        if any(state.is_open for state in states) or has_held_machines(ledger, self.name):
            return False
        ends_early = bool(batch.reason) or batch.request in (UserRequest.STOP, UserRequest.DESTROY)
        may_ask = batch.search is not None and len(states) < batch.search.samples
        return ends_early or not (may_ask or any(state.is_waiting for state in states))


def _row(result: PointResult) -> PointRow:
    run = result.run
    return PointRow(
        number=result.point.number,
        values=result.point.shown,
        verdict=result.verdict,
        cause=None if run is None or result.verdict is None else run.cause,
        metric=result.metric,
        diverged=result.diverged,
        step=result.step,
        hours=result.hours,
        usd=result.usd,
        attempts=result.attempts,
        run=None if run is None else run.id,
        outputs=None if run is None else Path(run.out_dir),
    )


def plan_batch(
    app: App,
    loaded: LoadedBatch,
    folder: Path,
    provider: str,
    note: Callable[[str], None] = lambda _: None,
) -> BatchPlan:
    """Return the plan of a batch whose job file is in `folder`, with its code packed.

    Raises if it cannot be uploaded, rented or paid.
    """
    ledger, packer, asked = app.ledger(), app.packer(NOTHING), loaded.spec.name
    loaded = rename_for_job(ledger, loaded)
    if loaded.spec.name != asked:
        note(f"the batch {asked} has another job; creating a new batch: {loaded.spec.name}")
    points = first_points(loaded.spec, loaded.points, loaded.search)
    job = read_job(points[0].spec_json)
    check_upload(packer, job, folder, note)
    check_values_used(job, loaded.unmentioned)
    points, search = pack_code(points, loaded.search, packer)
    now = app.now()
    return price(loaded.spec, points, app.shared_provider(provider), ledger, now, search, app.budgets(now))


def request_stop(ledger: Ledger, name: str) -> int:
    """Request a stop of the batch and its open runs from their launchers; return the number of open runs."""
    ledger.batches.get(name)
    ledger.batches.ask(name, UserRequest.STOP)
    open_runs = [run for run in ledger.runs(batch=name) if run.phase is not Phase.ENDED]
    for run in open_runs:
        ledger.ask(run.id, UserRequest.STOP)
    return len(open_runs)


def retry_points(ledger: Ledger, name: str, cause: str | None) -> int:
    """Reopen the failed points, or those with this cause; return their number.

    Raises UsageError if there are none.
    """
    ledger.batches.get(name)
    failed = [
        state.point.id
        for state in states_in(ledger, name)
        if state.has_failed and state.last is not None and cause in (None, state.last.cause)
    ]
    if not failed:
        with_cause = f" with {cause}" if cause else ""
        raise UsageError(f"no point of {name} has failed{with_cause}", hint=f"vastrun batch results {name}")
    ledger.batches.again(name, failed)
    return len(failed)


def has_held_machines(ledger: Ledger, name: str) -> bool:
    """Return whether a machine is held for the batch, or not yet confirmed to be gone."""
    return bool(holding_runs(ledger.runs(open_only=True, batch=name)))
