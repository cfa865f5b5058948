"""Ports of the ledger: durable runs, events, drivers, batches and budgets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from vastrun.launcher.core import Cause, Driver, Event, MeasuredRun, Run, UserRequest
from vastrun.launcher.core.batch import Batch, BatchPoint, Budget, BudgetUse


class Ledger(Protocol):
    """Durable runs, events and drivers. Raises StorageError when it cannot write."""

    id: str
    """Id that differs from those of other computers' ledgers; a copy has the same."""

    @property
    def batches(self) -> Batches:
        """The batches that its runs belong to."""

    def for_drivers(self) -> Ledger:
        """Return the ledger of launchers, without rows that a stranger may have written or changed.

        `get` raises UnsignedError for those.
        """

    def for_display(self) -> Ledger:
        """Return the ledger with all rows, to be shown. It saves none."""

    def add(self, run: Run, budgets: Sequence[Budget] = (), members: Sequence[Run] = ()) -> None:
        """Write the run's row, and its reservation into each of these budgets and into its batch's.

        `members`: the rows of its further nodes, written and reserved with it. Raises BudgetError, and
        writes nothing, where one of the budgets does not cover them all.
        """

    def use_of(self, budget: Budget) -> BudgetUse:
        """Return the USD that the budget's runs have spent of it, and those that they reserve."""

    def save(self, run: Run, *, who: str) -> None:
        """Write the row as given. Raises HeldError when `who` no longer drives the run."""

    def get(self, run_id: str) -> Run:
        """Return the run. Raises NoSuchRunError."""

    def runs(
        self,
        *,
        open_only: bool = False,
        batch: str | None = None,
        point: str | None = None,
        parent: str | None = None,
        causes: Collection[Cause] = (),
        leader: str | Collection[str] | None = None,
        members: bool = False,
        newest: int | None = None,
    ) -> Sequence[Run]:
        """List runs, newest first: all, or those that match the arguments, at most `newest`.

        Without the rows of further nodes, unless `members`; `leader`: only the further nodes of that run,
        or of those runs, in the order of the nodes.
        """

    def measured(self) -> Sequence[MeasuredRun]:
        """List the measurements of runs, newest first, without runs that have none.

        Called by each run before it rents: it takes a fifth of the time of `runs`.
        """

    def ended_by_cause(self) -> Mapping[Cause | None, int]:
        """Return the number of ended runs by cause; None: those that succeeded.

        A run with several nodes counts once.
        """

    def count(self) -> int:
        """Return the number of runs; a run with several nodes counts once."""

    def add_event(self, event: Event) -> None:
        """Write the event into the run's diary."""

    def events(self, run_id: str) -> Sequence[Event]:
        """Return the run's diary, oldest first."""

    def ask(self, run_id: str, request: UserRequest) -> None:
        """Save the request for the run's driver; a stronger one is never replaced by a weaker."""

    def user_request(self, run_id: str) -> UserRequest:
        """Return the request to the run's driver."""

    def hold(self, run_id: str, driver: Driver, *, renews: bool = False) -> None:
        """Save that `driver.who` drives the run until `driver.until`.

        Raises HeldError with the current driver. `renews`: it drove the run before; then also raised when
        another one did since, even if released: this launcher's copy of the run is outdated.
        """

    def release(self, run_id: str, who: str) -> None:
        """Save that `who` no longer drives the run."""

    def driver(self, run_id: str) -> Driver | None:
        """Return the current driver of the run."""

    def drivers(self) -> Mapping[str, Driver]:
        """Return the current drivers by run id."""

    def held_by(self, who: str) -> Sequence[str]:
        """Return the ids of the open runs whose last driver is this launcher, alive or dead."""

    def user_requests(self) -> Mapping[str, UserRequest]:
        """Return the requests to the drivers of open runs, by run id."""


class Batches(Protocol):
    """Durable batches and their points. Raises StorageError when it cannot write."""

    def submit(self, batch: Batch, points: Sequence[BatchPoint]) -> int:
        """Save the batch with exactly these points; return the number of new ones.

        Points that it had keep their numbers and runs; others are not started any more. An earlier request
        to stop is cleared unless a launcher is carrying it out. Raises UsageError when the batch is on
        another provider.
        """

    def extend(self, name: str, points: Sequence[BatchPoint]) -> int:
        """Add these points to the batch; return the number of new ones."""

    def get(self, name: str) -> Batch:
        """Return the batch. Raises UsageError when there is none of that name."""

    def all(self) -> Sequence[Batch]:
        """List every batch, newest first."""

    def points(self, name: str) -> Sequence[BatchPoint]:
        """List the points in the newest file of the batch, and those with runs, by number."""

    def values_of(self, name: str, point_id: str) -> Mapping[str, Any]:
        """Return the values of one point; empty where the batch does not have it any more."""

    def again(self, name: str, point_ids: Sequence[str]) -> None:
        """Request one more start of each of these points. Clears a request to stop as `submit` does."""

    def ask(self, name: str, request: UserRequest) -> None:
        """Save the request for the batch's driver."""

    def end(self, name: str, reason: str) -> None:
        """Save why the batch ended before its last point."""

    def reopen(self, name: str) -> None:
        """Clear the batch's reason and request, so that it continues.

        Raises HeldError while it is driven.
        """

    def move(self, name: str, folder: str, computer: str) -> None:
        """Save the new folder and computer of its outputs."""

    def hold(self, name: str, driver: Driver, *, renews: bool = False) -> None:
        """Save that `driver.who` drives the batch until `driver.until`.

        Raises HeldError with the current driver. `renews`: as for a run.
        """

    def release(self, name: str, who: str) -> None:
        """Save that `who` no longer drives the batch."""

    def is_driven(self, name: str) -> bool:
        """Return whether a launcher drives the batch now."""

    def held_by(self, who: str) -> Sequence[str]:
        """Return the names of the batches that this launcher drives, or drove when it died."""

    def held_usd(self, name: str) -> float:
        """Return the USD that its runs use of its budget: reserved while they are open, then spent."""


_T = TypeVar("_T")


class RateLimitStore(Protocol):
    """Shared state of a rate limit: a text per endpoint, for all processes. Raises StorageError."""

    def change(self, endpoint: str, work: Callable[[str, float], tuple[str, _T]]) -> _T:
        """Call `work` with the endpoint's text, empty at first, and the time; save the text that it
        returns.

        Calls are serialized, with one clock for all. Returns the second value of `work`.
        """


class SecretStore(Protocol):
    """Secrets that each computer of a team can read. Raises StorageError; UsageError with a wrong key."""

    def put(self, name: str, secret: bytes) -> bytes:
        """Save the secret and return it; where one of that name exists, return that and change nothing."""

    def replace(self, name: str, secret: bytes) -> None:
        """Save the secret, replacing one of that name."""

    def get(self, name: str) -> bytes | None:
        """Return the secret; None where there is none of that name."""

    def remove(self, name: str) -> None:
        """Delete the secret."""
