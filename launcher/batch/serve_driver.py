"""Serving: keeps the runs and batches of a ledger going that no living launcher drives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from vastrun.launcher.batch.schedule import states_of
from vastrun.launcher.batch.shared import SharedRequests
from vastrun.launcher.commands.chains import is_retry_missing
from vastrun.launcher.core import Phase, Run, UserRequest, errors
from vastrun.launcher.core.batch import Batch
from vastrun.launcher.ports import Ledger, RunThreads

POLL_INTERVAL_S = 5.0
"""Between two looks at the ledger."""
_MIN_SIGHTINGS = 2
"""Minimum consecutive polls without a driver: a launch briefly has none."""
_RETRY_INTERVAL_S = 60.0
"""After one that could not be driven, until it is tried again."""
_MAX_ENDED_RUNS = 200
"""Number of newest runs searched for retries that were never started."""


@dataclass(frozen=True)
class UndrivenWork:
    """Open run or batch without a driver."""

    kind: str
    """`run` or `batch`."""
    name: str

    def __str__(self) -> str:
        return f"batch {self.name}" if self.kind == "batch" else self.name


@dataclass(kw_only=True)
class ServeDriver:
    """Looks at the ledger again and again, until its user asks it to leave."""

    ledger: Ledger
    is_reachable: Callable[[str, str], bool]
    """Returns whether machines that a computer rented at a provider can be reached from here."""
    drive_run: Callable[[Run, SharedRequests], Run]
    drive_batch: Callable[[str, SharedRequests], object]
    requests: Callable[[], UserRequest]
    """Returns the request of the user at this terminal."""
    shared: SharedRequests
    workers: RunThreads
    sleep: Callable[[float], None]
    now: Callable[[], float]
    note: Callable[[str], None]
    """Shows a line."""
    _driven: dict[UndrivenWork, Future[Any]] = field(default_factory=dict)
    _seen: dict[UndrivenWork, int] = field(default_factory=dict)
    """Number of consecutive polls in which it had no driver."""
    _not_before: dict[UndrivenWork, float] = field(default_factory=dict)
    _idle_batches: dict[str, int] = field(default_factory=dict)
    """Batches with nothing to do, at that revision."""
    _without_retry: set[str] = field(default_factory=set)
    """Ended runs that are owed nothing."""
    _unsigned: set[str] = field(default_factory=set)
    """Runs that were reported to be left alone."""

    @property
    def runs_at_once(self) -> int:
        """Return the number of runs and batches driven here."""
        return len(self._driven)

    def driven(self) -> Mapping[str, int]:
        """Return the number of runs and of batches driven here, by kind."""
        kinds = [one.kind for one in list(self._driven)]
        return {kind: kinds.count(kind) for kind in ("run", "batch")}

    def serve(self) -> None:
        """Drive what has no driver until the user stops; then detach."""
        while self.requests() is UserRequest.NONE:
            try:
                self.look()
            except errors.StorageError as error:
                self.note(f"{error}; trying again")
            self.sleep(POLL_INTERVAL_S)
        self.shared.ask(UserRequest.DETACH)
        if still := [str(one) for one in self._driven]:
            self.note(f"leaving {', '.join(still)}: they continue without a launcher")
        while self._driven:
            self._reap()
            self.sleep(POLL_INTERVAL_S)

    def look(self) -> None:
        """Start driving what had no driver in this poll and the one before; collect what has ended."""
        self._reap()
        found = set(self._open())
        self._seen = {one: self._seen.get(one, 0) + 1 for one in found}
        for one in sorted(found, key=str):
            due = self._not_before.get(one, 0.0) <= self.now()
            if self._seen[one] >= _MIN_SIGHTINGS and due and one not in self._driven:
                self.note(f"driving {one}")
                self._driven[one] = self.workers.submit(partial(self._drive, one))

    def _drive(self, one: UndrivenWork) -> object:
        if one.kind == "batch":
            return self.drive_batch(one.name, self.shared)
        return self.drive_run(self.ledger.get(one.name), self.shared)

    def _reap(self) -> None:
        for one in [one for one, thread in self._driven.items() if thread.done()]:
            thread = self._driven.pop(one)
            self._not_before[one] = self.now() + _RETRY_INTERVAL_S
            try:
                done = thread.result()
            except errors.HeldError:
                self.note(f"{one} is driven by another launcher")
                continue
            except errors.VastrunError as error:
                hint = f" (try: {error.hint})" if error.hint else ""
                self.note(f"{one}: {error}{hint}")
                if isinstance(error, errors.UsageError | errors.AuthError):
                    self._not_before[one] = self.now() + 10 * _RETRY_INTERVAL_S
                continue
            self.note(_end_of(one, done))

    def _report_unsigned(self, runs: Sequence[Run]) -> None:
        """Report once each open run that is left alone, and what to do."""
        known = {run.id for run in runs} | self._unsigned
        for run in self.ledger.for_display().runs(open_only=True):
            if run.id not in known and self._has_no_driver(run):
                self._unsigned.add(run.id)
                try:
                    self.ledger.get(run.id)
                except errors.UnsignedError as error:
                    self.note(f"{error} (try: {error.hint})")

    def _open(self) -> Iterator[UndrivenWork]:
        ledger = self.ledger
        runs = ledger.runs(open_only=True)
        self._report_unsigned(runs)
        batches = {batch.name: batch for batch in ledger.batches.all()}
        for run in runs:
            if run.batch not in batches and self._has_no_driver(run):
                yield UndrivenWork("run", run.id)
        for run in ledger.runs(newest=_MAX_ENDED_RUNS):
            if run.batch not in batches and self._needs_retry(run):
                yield UndrivenWork("run", run.id)
        busy = {run.batch for run in runs}
        for batch in batches.values():
            work = UndrivenWork("batch", batch.name)
            # While its page is written here nobody holds it, and to read it then takes its memory twice.
            if work not in self._driven and self._is_abandoned(batch, is_busy=batch.name in busy):
                yield work

    def _has_no_driver(self, run: Run) -> bool:
        reachable = self.is_reachable(run.provider, run.computer)
        return reachable and self.ledger.driver(run.id) is None

    def _needs_retry(self, run: Run) -> bool:
        if run.phase is not Phase.ENDED or run.id in self._without_retry:
            return False
        if not is_retry_missing(self.ledger, run, self.now()):
            self._without_retry.add(run.id)
            return False
        return self._has_no_driver(run)

    def _is_abandoned(self, batch: Batch, *, is_busy: bool) -> bool:
        """Return whether the batch has work left and no launcher."""
        ledger = self.ledger
        if not self.is_reachable(batch.provider, batch.computer) or ledger.batches.is_driven(batch.name):
            return False
        if is_busy:
            return True
        if (
            batch.reason
            or batch.request in (UserRequest.STOP, UserRequest.DESTROY)
            or self._idle_batches.get(batch.name) == batch.revision
        ):
            return False
        states = states_of(ledger.batches.points(batch.name), ledger.runs(batch=batch.name))
        may_ask = batch.search is not None and len(states) < batch.search.samples
        if may_ask or any(state.is_waiting for state in states):
            return True
        self._idle_batches[batch.name] = batch.revision
        return False


def _end_of(one: UndrivenWork, done: object) -> str:
    if not isinstance(done, Run):
        return f"{one} has nothing left to do"
    if done.phase is Phase.ENDED:
        following = "" if done.id == one.name else f", as {done.id}"
        return f"{one} ended{following}: {done.verdict}"
    return f"{one} continues in phase {done.phase} without this launcher"
