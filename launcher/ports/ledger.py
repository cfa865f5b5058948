"""The ports of the ledger: runs, events, drivers, batches and budgets, durable."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from vastrun.launcher.core import Cause, Driver, Event, MeasuredRun, Run, UserRequest, Volume
from vastrun.launcher.core.batch import Batch, BatchPoint, Budget, BudgetUse


class Ledger(Protocol):
    """Runs, events and drivers, durable. Raises StorageError when it cannot write."""

    id: str
    """Tells it from the ledgers of other computers; a copy has the same."""

    @property
    def batches(self) -> Batches:
        """The batches that its runs belong to."""
        ...

    @property
    def volumes(self) -> VolumeRecords:
        """The data volumes that its runs created."""
        ...

    def add(self, run: Run, budgets: Sequence[Budget] = (), members: Sequence[Run] = ()) -> None:
        """Write the run's row, and its reservation into each of these budgets and into its batch's.

        `members`: the rows of its further nodes, written and reserved with it. Raises BudgetError, and
        nothing is written, where one of the budgets has no room for them all.
        """
        ...

    def use_of(self, budget: Budget) -> BudgetUse:
        """Return the dollars that the budget's runs have spent of it, and those that they hold besides."""
        ...

    def save(self, run: Run, *, who: str) -> None:
        """Write the row as given. Raises HeldError when `who` no longer drives the run."""
        ...

    def get(self, run_id: str) -> Run:
        """Return the run. Raises NoSuchRunError."""
        ...

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
        """List runs, newest first: all, or those that fit whatever is given, at most `newest` of them.

        The rows of further nodes are left out, unless `members` asks for them, too; `leader`: those of that
        run, or of those, and nothing else, in the order of the nodes.
        """
        ...

    def measured(self) -> Sequence[MeasuredRun]:
        """List what runs have shown of their machines, newest first; those that showed nothing are left out.

        Each run asks for it before it rents: it costs a fifth of `runs`.
        """
        ...

    def count(self) -> int:
        """Return how many runs there are, each with all of its nodes."""
        ...

    def add_event(self, event: Event) -> None:
        """Write the event into the run's diary."""
        ...

    def events(self, run_id: str) -> Sequence[Event]:
        """Return the run's diary, oldest first."""
        ...

    def ask(self, run_id: str, request: UserRequest) -> None:
        """Note the request for whoever drives the run; a stronger one is never replaced by a weaker."""
        ...

    def user_request(self, run_id: str) -> UserRequest:
        """Return what was asked of the run's driver."""
        ...

    def hold(self, run_id: str, driver: Driver, *, renews: bool = False) -> None:
        """Note that `driver.who` drives the run until `driver.until`.

        Raises HeldError, which says who does. `renews`: it drove the run before. Also raised when another one
        did since, even if that one has let go: what this launcher knows of the run is of before.
        """
        ...

    def release(self, run_id: str, who: str) -> None:
        """Note that `who` no longer drives the run."""
        ...

    def driver(self, run_id: str) -> Driver | None:
        """Return who drives the run now."""
        ...

    def drivers(self) -> Mapping[str, Driver]:
        """Return who drives what now, by the run's id."""
        ...

    def held_by(self, who: str) -> Sequence[str]:
        """Return the ids of the open runs that this launcher was the last to drive, alive or dead."""
        ...

    def user_requests(self) -> Mapping[str, UserRequest]:
        """Return what was asked of the drivers of open runs, by the run's id."""
        ...


class Batches(Protocol):
    """Batches and their points, durable. Raises StorageError when it cannot write."""

    def submit(self, batch: Batch, points: Sequence[BatchPoint]) -> int:
        """Give the batch these points; return how many of them are new to it.

        Points that it had keep their numbers and runs; those not given are not started any more. Raises
        UsageError when the batch is on another provider.
        """
        ...

    def extend(self, name: str, points: Sequence[BatchPoint]) -> int:
        """Give the batch these points, too; return how many of them are new to it."""
        ...

    def get(self, name: str) -> Batch:
        """Return the batch. Raises UsageError when there is none of that name."""
        ...

    def all(self) -> Sequence[Batch]:
        """List every batch, newest first."""
        ...

    def points(self, name: str) -> Sequence[BatchPoint]:
        """List the points that the newest file of the batch has, and those that have runs, by number."""
        ...

    def values_of(self, name: str, point_id: str) -> Mapping[str, Any]:
        """Return the values of one point; none where the batch has no such point any more."""
        ...

    def again(self, name: str, point_ids: Sequence[str]) -> None:
        """Have each of these points started once more than it was."""
        ...

    def ask(self, name: str, request: UserRequest) -> None:
        """Note the request for whoever drives the batch."""
        ...

    def end(self, name: str, reason: str) -> None:
        """Note why the batch ended before its last point."""
        ...

    def reopen(self, name: str) -> None:
        """Let the batch go on: neither a reason nor a request holds it.

        Raises HeldError while it is driven.
        """
        ...

    def remove(self, name: str) -> str:
        """Remove the batch and its points; return the name that its runs go by from now on."""
        ...

    def move(self, name: str, folder: str, computer: str) -> None:
        """Note where its outputs come to lie from now on, and on which computer."""
        ...

    def hold(self, name: str, driver: Driver, *, renews: bool = False) -> None:
        """Note that `driver.who` drives the batch until `driver.until`.

        Raises HeldError, which says who does. `renews`: as of a run.
        """
        ...

    def release(self, name: str, who: str) -> None:
        """Note that `who` no longer drives the batch."""
        ...

    def is_driven(self, name: str) -> bool:
        """Return whether a launcher drives the batch now."""
        ...

    def held_by(self, who: str) -> Sequence[str]:
        """Return the names of the batches that this launcher drives, or drove when it died."""
        ...

    def held_usd(self, name: str) -> float:
        """Return the dollars that its runs hold of its budget: reserved while they are open, then spent."""
        ...


class VolumeRecords(Protocol):
    """Data volumes, durable. Raises StorageError when it cannot write."""

    def all(self, *, existing: bool = False) -> Sequence[Volume]:
        """List every volume, newest first; `existing`: without those that are gone."""
        ...

    def find(self, provider: str, name: str) -> Volume | None:
        """Return the volume of that name that exists or was ordered; None: there is none."""
        ...

    def add(self, volume: Volume, budgets: Sequence[Budget], usd: float) -> bool:
        """Write a volume that is about to be ordered. False: one of its name is there, nothing is written.

        `usd`: what it may cost during the run that orders it. Raises BudgetError, and nothing is written,
        where one of the budgets has no room for that.
        """
        ...

    def save(self, volume: Volume) -> None:
        """Write what is known of the volume by now."""
        ...


_T = TypeVar("_T")


class RateLimitStore(Protocol):
    """Who calls when: a text an endpoint, for all who must keep one pace. Raises StorageError."""

    def change(self, endpoint: str, work: Callable[[str, float], tuple[str, _T]]) -> _T:
        """Give `work` the endpoint's text, empty at first, and the time; keep the text that it returns.

        One after the other. The time is the same clock's for all. Returns what `work` does besides.
        """
        ...


class SecretStore(Protocol):
    """Secrets that each computer of a team can read. Raises StorageError; UsageError with a wrong key."""

    def put(self, name: str, secret: bytes) -> bytes:
        """Keep the secret and return it; where there is one of that name, return that and change nothing."""
        ...

    def replace(self, name: str, secret: bytes) -> None:
        """Keep the secret in place of what has that name."""
        ...

    def get(self, name: str) -> bytes | None:
        """Return the secret; None where there is none of that name."""
        ...

    def remove(self, name: str) -> None:
        """Forget the secret."""
        ...
