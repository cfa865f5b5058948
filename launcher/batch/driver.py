"""Drives a batch: starts runs while its limits allow, follows each in a thread, ends when nothing is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from vastrun.launcher.batch.fleet import Fleet
from vastrun.launcher.batch.observer import BatchObserver
from vastrun.launcher.batch.points import PointTable, Shortage
from vastrun.launcher.batch.schedule import BatchQueue, PointState, stop_reason
from vastrun.launcher.batch.search import next_points
from vastrun.launcher.batch.shared import BatchServices, RunScreen, SharedRequests
from vastrun.launcher.commands.attempts import AttemptPlacement, Attempts
from vastrun.launcher.commands.chains import is_retry_missing
from vastrun.launcher.commands.takeover import move_batch
from vastrun.launcher.core import NOTHING, Driver, Phase, Run, UserRequest
from vastrun.launcher.core.batch import BatchPoint
from vastrun.launcher.core.errors import BudgetError, HeldError, UsageError, VastrunError
from vastrun.launcher.core.labels import POOL
from vastrun.launcher.decisions.policy import DRIVER_TIMEOUT_S

POLL_INTERVAL_S = 0.5
"""Between two looks at the batch: a free slot waits no longer for its next run."""
_MANAGE_INTERVAL_S = 2.0
_SETTLE_INTERVAL_S = 600.0
"""Seconds between two polls for bills that are due; the budget holds their possible rest until then."""
MAX_RENTING = 8
"""Maximum runs that choose and rent a machine at once. A provider limits the rate: more would hold money
while they wait, and find offers taken.
"""


class BatchDriver:
    """One drive of one batch."""

    def __init__(self, name: str, services: BatchServices) -> None:
        self._name, self._services = name, services
        self._batches = services.ledger.batches
        self._batch = self._batches.get(name)
        self._shared = SharedRequests(services.now, services.wake_signal)
        self._table = PointTable(services.ledger, name)
        self._threads: dict[str, Future[Run]] = {}
        """Runs driven here, by the id of the point."""
        self._pages: list[Future[None]] = []
        """Work on runs that have ended, their pages and bills: it takes no slot."""
        self._shortage = Shortage()
        self._error: VastrunError | None = None
        self._is_searched = False
        """The search has no further points."""
        self._observer = BatchObserver(self._batch, services, self._table)
        self._held_at = self._managed_at = 0.0
        self._settled_at = services.now()
        self._fleet = Fleet(self._batch, services, self._attempts)

    def drive(self) -> Sequence[PointState]:
        """Run the batch until each point has ended, or nothing more may start; return how they stand.

        Raises HeldError while another launcher drives it, and what no run can go on with: StorageError,
        AuthError. The runs that were driven have then ended, or are to be resumed.
        """
        self._hold()
        try:
            self._move_here()
            self._forward_requests()
            self._table.reload_if_changed(self._batch)
            self._observer.check_notifications()
            self._guarded(self._resume)
            while self._guarded(self._poll):
                self._services.sleep(POLL_INTERVAL_S)
            open_here = any(state.is_open for state in self._table.changing)
            # What an error left undone, another launcher may have brought to its end meanwhile.
            has_failed = self._error is not None and self._has_open_work()
            self._observer.notify(is_over=not has_failed and not open_here)
        finally:
            self._batches.release(self._name, self._services.who)
        if self._error is not None and has_failed:
            raise self._error
        return self._table.states

    def runs_at_once(self) -> int:
        """Return how many runs are driven here now."""
        return len(self._threads) + self._fleet.size

    def _guarded(self, step: Callable[[], bool]) -> bool:
        """Do a step; return its result, or after an error whether something is still driven here.

        The threads of the runs go on after an error, and hear of the user's requests only from here.
        """
        try:
            return step()
        except VastrunError as error:
            self._fail(error)
            self._shared.ask(self._services.requests())
            work: list[Future[Any]] = [*self._threads.values(), *self._pages]
            return self._fleet.is_driven or not all(one.done() for one in work)

    def _fail(self, error: VastrunError) -> None:
        """Note an error that ends the batch: nothing more is started."""
        if self._error is None:
            self._error = error
            self._services.screen.note(f"nothing more is started: {error}")

    def _poll(self) -> bool:
        """Take one look at everything; return False when nothing is left to wait for."""
        now = self._services.now()
        if now - self._held_at > DRIVER_TIMEOUT_S / 10:
            self._hold()
        self._batch = self._batches.get(self._name)
        self._forward_requests()
        self._reap()
        self._table.reload_if_changed(self._batch)
        self._search()
        self._start(now)
        self._manage_machines(now)
        self._observer.observe(self._batch, now)
        if now - self._settled_at > _SETTLE_INTERVAL_S:
            self._settled_at = now
            self._make_pages(self._services.settle)
        return bool(self._threads or self._pages) or self._fleet.is_open

    def _has_open_work(self) -> bool:
        """Return whether the ledger has an open run or a waiting point now."""
        states = [self._table.refresh(state.point) for state in self._table.states]
        return self._fleet.is_open or any(state.is_open or state.is_waiting for state in states)

    def _hold(self) -> None:
        renews, now = self._held_at > 0, self._services.now()
        self._batches.hold(
            self._name, Driver(who=self._services.who, until=now + DRIVER_TIMEOUT_S), renews=renews
        )
        self._held_at = now

    def _move_here(self) -> None:
        """Have the outputs come to this computer, where a launcher of another one has begun the batch."""
        services = self._services
        if self._batch.computer != services.computer:
            provider = self._attempts().services_for(self._batch.provider, NOTHING).provider
            services.screen.note(move_batch(self._batch, provider, services.ledger, services.computer))
            self._batch = self._batches.get(self._name)

    def _forward_requests(self) -> None:
        """Forward the user's request, made here or on another computer, to every run."""
        here, elsewhere = self._services.requests(), self._batch.request
        self._shared.ask(here.or_stronger(elsewhere))

    def _resume(self) -> bool:
        """Take up runs that a launcher before left open, and attempts that it did not live to begin.

        Of a batch that is to stop only the former: what is rented has to end.
        """
        self._fleet.resume()
        stopping = self._batch.request in (UserRequest.STOP, UserRequest.DESTROY)
        for state in self._table.states:
            run = state.last
            if run is None:
                continue
            if state.is_open or (
                not stopping and is_retry_missing(self._services.ledger, run, self._services.now())
            ):
                self._follow(state.point, run)
        return True

    @property
    def _is_ending(self) -> bool:
        return self._error is not None or self._shared.current() is not UserRequest.NONE

    def _search(self) -> None:
        """Ask the batch's search for as many points as could be begun now."""
        search = self._batch.search
        if search is None or self._is_searched or self._is_ending or self._batch.reason:
            return
        count = self._batch.spec.limits.parallel - len(self._threads) - len(self._table.waiting())
        if count <= 0:
            return
        points = next_points(search, self._batch.spec, self._table.states, count)
        self._is_searched = not self._batches.extend(self._name, points) if points else True
        self._batch = self._batches.get(self._name)
        self._table.reload_if_changed(self._batch)

    def _start(self, now: float) -> None:
        """Begin runs for free slots, as the budget allows."""
        if self._is_ending:
            return
        limits, waiting = self._batch.spec.limits, self._waiting()
        queue, causes = waiting.queue, self._table.failure_causes()
        reason = stop_reason(causes, len(self._table), limits, self._batch.opened_at, now) if queue else ""
        reason = reason or self._shortage.stop_reason(len(queue), limits.stop.same_cause)
        if reason:
            self._end(reason)
            return
        free = self._shortage.slots(limits.parallel, now) - len(self._threads)
        if free <= 0 or not queue:
            return
        # Those that chose or rented a machine before are looked at again.
        renting = [self._table.refresh(one.point) for one in self._table.changing if one.is_renting]
        count = min(free, MAX_RENTING - sum(one.is_renting for one in renting))
        if count <= 0:
            return
        try:
            for state, placed in self._fleet.place_points(
                self._batch, waiting, count, self._table.durations_s
            ):
                run = self._begin(state, placed)
                self._table.refresh(state.point)
                self._follow(state.point, run)
        except BudgetError as error:
            if not self._threads and not self._fleet.is_open:  # nothing will be released any more
                self._observer.is_used_up = error.budget == f"batch {self._name}"
                self._end(f"{error} ({error.hint})" if error.hint else str(error))
        except VastrunError as error:
            self._fail(error)

    def _manage_machines(self, now: float) -> None:
        """Look after the machines that the batch holds; they continue without a user who detached."""
        is_detached = self._shared.current() in (UserRequest.DETACH, UserRequest.DETACH_ONCE_TRAINING)
        if not self._fleet.is_open or now - self._managed_at < _MANAGE_INTERVAL_S or is_detached:
            return
        self._managed_at = now
        is_over = self._is_ending or bool(self._batch.reason)
        self._fleet.release_idle(self._batch, BatchQueue() if is_over else self._waiting())

    def _waiting(self) -> BatchQueue:
        search = self._batch.search
        waiting, threads, shortage = self._table.waiting(), self._threads, self._shortage
        return BatchQueue(
            queue=[one for one in waiting if one.point.id not in threads and not shortage.is_hopeless(one)],
            more=0 if search is None or self._is_searched else search.samples - len(self._table),
            running=[self._table.of(id_) for id_ in self._threads],
            parallel=self._batch.spec.limits.parallel,
        )

    def _end(self, reason: str) -> None:
        if reason != self._batch.reason:
            self._batches.end(self._name, reason)
            self._services.screen.note(f"nothing more is started: {reason}")

    def _begin(self, state: PointState, placed: AttemptPlacement) -> Run:
        # Further attempts of the job's `retry:` lie beside the first one, by their number.
        point, again = state.point, f"-{len(state.runs) + 1}" if state.runs else ""
        folder = Path(self._batch.folder) / f"{point.number:04d}-{point.id}{again}"
        return self._attempts().start(
            placed.spec,
            provider=placed.provider,
            run_id=self._services.new_id(),
            out_dir=str(folder),
            batch=self._name,
            point=point.id,
            home=self._batch.home,
        )

    def _attempts(self) -> Attempts:
        attempts = self._services.attempts(self._shared, RunScreen(), self.runs_at_once)
        return replace(attempts, place_retry=self._fleet.place_retry, in_background=self._make_pages)

    def _make_pages(self, work: Callable[[], None]) -> None:
        self._pages.append(self._services.workers.submit(work))

    def _follow(self, point: BatchPoint, run: Run) -> None:
        self._threads[point.id] = self._services.workers.submit(lambda: self._pursue(run))

    def _pursue(self, run: Run) -> Run:
        """Drive the run to its end with its retries. Runs in its own thread."""
        attempts = self._attempts()
        if run.phase is not Phase.ENDED:
            return attempts.drive_to_end(run)
        with suppress(UsageError):  # nothing was left to be done
            return attempts.resume(run, None)
        return run

    def _reap(self) -> None:
        """Take in the runs that have ended, or were left."""
        for made in [pages for pages in self._pages if pages.done()]:
            self._pages.remove(made)
            made.result()
        self._fleet.reap()
        if self._fleet.error is not None:
            self._fail(self._fleet.error)
        for id_ in [id_ for id_, thread in self._threads.items() if thread.done()]:
            thread = self._threads.pop(id_)
            try:
                thread.result()
            except HeldError as held:
                self._services.screen.note(str(held))
            except VastrunError as error:
                # What one run can not go on with, the others can not either: a full disk, a refused key.
                self._fail(error)
            state = self._table.refresh(self._table.of(id_).point)
            if state.verdict is not None:
                self._services.screen.ended(state, self._batch)
            elif state.lacks_offer:
                self._note_shortage(state)

    def _note_shortage(self, state: PointState) -> None:
        """Note that the market has no machine for a point, or a held machine has no slot."""
        if state.last is not None and state.last.provider == POOL != self._batch.provider:
            self._fleet.note_refusal(state.last)
            return
        running = max(len(self._threads), self._fleet.size)
        if message := self._shortage.note(state, running, self._services.now()):
            self._services.screen.note(message)
