"""The machines of a run, by the id in its row and by its label. A market's list may lag."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from vastrun.launcher.core import Instance, Meter, Offer, Rental, Run, bills, errors
from vastrun.launcher.decisions import policy
from vastrun.launcher.decisions.offer_check import TrafficMeasure, confirmed, counted, counter_fault
from vastrun.launcher.flow.services import Services
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ports import Provider

if TYPE_CHECKING:
    from vastrun.launcher.flow.run_state import RunState

_FAST_POLL_INTERVAL_S = 0.05
"""Seconds between two looks at a provider whose list is never late."""
ANSWER_SAVE_S = 60.0
"""Seconds after which the time of the last answer is saved again, where nothing else is."""
_T = TypeVar("_T")


def find_machines(run: Run, provider: Provider) -> list[Instance]:
    """Return the run's machines, the noted one first. Raises ProviderError when the list is unknown.

    A machine whose id is in the row is looked up by id where the list lacks it or failed: the list may be
    late, and the user may have changed the machine's label.
    """
    try:
        by_run = provider.abilities.by_run
        listed = provider.instances() if by_run is None else by_run.instances_for(run)
        found = policy.machines_of_run(run, listed)
    except errors.ProviderError as error:
        # What can be read of a list is there. What it lacks may be, too: then the machine's own row is enough
        # to go on with, and that there is none says nothing.
        readable = error.found if isinstance(error, errors.IncompleteListError) else ()
        found = policy.machines_of_run(run, readable)
        if not found and run.instance_id is not None:
            noted = provider.machine(run.instance_id)
            found = [noted] if noted else []
        if not found:
            raise
    if run.instance_id is not None and all(machine.id != run.instance_id for machine in found):
        noted = provider.machine(run.instance_id)
        found = [*([noted] if noted else []), *found]
    return [replace(machine, label=run.label) for machine in found]


def is_absent(services: Services, machine_id: str) -> bool:
    """Return whether the provider has no machine of that id, even if it is still listed. False without a
    response."""
    try:
        return services.provider.machine(machine_id) is None
    except errors.ProviderError:
        return False


class RunMachines:
    """The machines that the provider lists for a run: the one that is its own, its meter, its end."""

    def __init__(self, state: RunState) -> None:
        self._state, self._services = state, state.services
        self.was_order_rejected = False
        """True if the last order was rejected: no machine is waited for."""
        self.last_order_at = state.now()
        """Latest time at which a machine with an unknown id may have been ordered. An order may have
        waited long for its turn since the row noted it, and a launcher that died may have sent one until
        this one came."""
        self.seen_at = 0.0
        """Time at which this launcher last saw the run's machine at its provider."""
        self._listed_as = ""
        """State of the machine in its provider's last list."""
        self._answered_at = state.run.meter.answered_at
        """Time at which the machine last answered."""
        self.traffic = TrafficMeasure()
        self._is_counter_doubted = False
        self._reported_unreadable: set[str] = set()
        self._earlier_users: dict[str, str] = {}
        """The other run that had a machine, by the machine's id; empty: none."""
        self._reported_stale: set[str] = set()

    def list_all(self) -> list[Instance]:
        """List this run's machines, and destroy those that are not its own.

        Raises ProviderError when the list is unknown.
        """
        asked_at = self._state.now()
        found = [
            one for one in find_machines(self._state.run, self._services.provider) if not self._is_stale(one)
        ]
        own = self._own_of(found)
        new = {name for machine in own for name in machine.unreadable} - self._reported_unreadable
        if new:
            self._reported_unreadable |= new
            with suppress(errors.StorageError):
                names = ", ".join(sorted(new))
                self._state.report(
                    f"the provider lists values of the machine that make no sense, ignored: {names}"
                )
        # A disk that is full must not keep a machine from its end: the next row has it.
        for machine in own:
            with suppress(errors.StorageError):
                self.observe(machine, asked_at)
        for machine in found:
            if machine not in own:
                self._destroy_other(machine, asked_at)
        return found

    def _is_stale(self, machine: Instance) -> bool:
        """Return whether the row is stale, and report it once; `vastrun reap` may destroy that machine."""
        why = self._stale_reason(machine, self._state.run)
        if why and machine.id not in self._reported_stale:
            self._reported_stale.add(machine.id)
            with suppress(errors.StorageError):
                self._state.report(f"the provider lists machine {machine.id} for this run, ignored: {why}")
        return bool(why)

    def _stale_reason(self, machine: Instance, run: Run) -> str:
        """Return why a row with the run's label is ignored; empty: it is a machine of the run.

        Applies to markets only: slots have the same id for one run after another.
        """
        if machine.id == run.instance_id or self._services.provider.abilities.market is None:
            return ""
        if machine.id not in self._earlier_users:
            rows = self._services.ledger.runs(members=True)
            earlier = (one for one in rows if one.id != run.id and one.provider == run.provider)
            users = (one.id for one in earlier if machine.id in bills.machine_ids(one))
            self._earlier_users[machine.id] = next(users, "")
        if user := self._earlier_users[machine.id]:
            return f"it belonged to run {user}"
        ended = any(one.instance_id == machine.id and one.meter.absent_at for one in run.rentals)
        if ended and is_absent(self._services, machine.id):
            return "it was destroyed, and its id is unknown"
        return ""

    def own(self) -> Instance | None:
        """Return the run's machine, without others that have its label. Raises ProviderError."""
        return next(iter(self._own_of(self.list_all())), None)

    def _own_of(self, found: Sequence[Instance]) -> Sequence[Instance]:
        """Return at most one of them: the machine in the run's row, else the first."""
        if self._state.run.instance_id is None:
            return [machine for machine in found if machine.id not in bills.machine_ids(self._state.run)][:1]
        return [machine for machine in found if machine.id == self._state.run.instance_id]

    def _destroy_other(self, machine: Instance, asked_at: float) -> None:
        """Destroy a machine that the provider made late, or twice, and add its cost to the run's."""
        # It may be seen at several looks, and is reported and added to the rentals once.
        is_new = all(one.instance_id != machine.id for one in self._state.run.rentals)
        rental = bills.rental_of(self._state.run, machine, machine.asked_at or asked_at, self._state.now())
        with suppress(errors.VastrunError):  # one that stays is seen again
            self._services.provider.destroy(machine.id)
            rental = replace(rental, released_at=self._state.now())
            if is_absent(self._services, machine.id):
                rental = replace(rental, meter=replace(rental.meter, absent_at=self._state.now()))
        with suppress(errors.StorageError):
            self._state.save(rentals=bills.with_rental(self._state.run, rental))
            if is_new:
                price = f"${machine.usd_per_hour:.3f}/h"
                self._state.report(
                    f"found another machine of this run, {machine.id} at {price}: destroying it"
                )

    def observe(self, machine: Instance, asked_at: float) -> None:
        """Update the run's meter by what was seen of the machine.

        Counts from when the provider was asked: its response is of a moment after that, unknown how long
        before it arrived. Counted from the arrival, GPUs that started to run meanwhile would be charged
        too little.
        """
        meter = self._state.run.meter
        if meter.given_back_at is not None and is_absent(self._services, machine.id):
            if meter.absent_at is None:  # it ended by now; from here on the list is late
                self._state.save(
                    meter=replace(meter, given_back_at=self._state.now(), absent_at=self._state.now())
                )
            return
        asked_at = self.seen_at = machine.asked_at or asked_at
        self._listed_as = one_line(machine.state)
        age_s = bills.rented_seconds(self._state.run, self._state.now())
        if not self._is_counter_doubted and (fault := counter_fault(machine, self.traffic, age_s)):
            self._is_counter_doubted = True
            self._state.report(f"{fault}; vastrun counts its own transfers until the bill is settled")
        machine = counted(machine, self.traffic, is_doubted=self._is_counter_doubted)
        run = bills.seen(self._state.run, machine, asked_at, self._state.now())
        if run == self._state.run:
            return
        former = self._state.run.usd_per_hour
        self._state.save(
            meter=run.meter, usd_per_hour=run.usd_per_hour, rented_at=run.rented_at, host=run.host
        )
        if run.usd_per_hour != former:
            self._state.report(f"the machine costs ${run.usd_per_hour:.3f}/h now, ${former:.3f}/h before")

    def note_answer(self) -> None:
        """Record that the machine answered; report it where it did not before."""
        meter, now = self._state.run.meter, self._state.now()
        if meter.silent and meter.absent_at is None:  # the files of one that is gone may be on another disk
            silent_s = now - (meter.answered_at or now)
            self._state.report(f"the machine answers again, after {silent_s / 60:.1f} min")
        self._answered_at = now
        if meter.silent or meter.answered_at is None or now - meter.answered_at >= ANSWER_SAVE_S:
            self._state.save(meter=replace(meter, answered_at=now, silent=False))

    def note_silence(self, error: errors.ProviderError) -> None:
        """Record that the machine does not answer; report once what its provider says of it."""
        meter = self._state.run.meter
        if meter.silent or meter.absent_at is not None:
            return
        is_listed = self._state.now() - self.seen_at < ANSWER_SAVE_S
        what = f"lists it as {self._listed_as}" if is_listed else "cannot be asked"
        self._state.report(f"the machine does not answer ({error}); its provider {what}")
        self._state.save(meter=replace(meter, answered_at=self._answered_at, silent=True))

    def confirmed_run(self) -> Run:
        """Return the run as limits count it: without traffic that only the provider's counter claims."""
        return confirmed(self._state.run, self.traffic)

    def refresh_meter(self) -> None:
        """Update the meter by the machine's own row: the list may be older."""
        if self._state.run.instance_id is None or self._services.provider.free:
            return
        asked_at = self._state.now()
        with suppress(errors.ProviderError, errors.StorageError):
            machine = self._services.provider.machine(self._state.run.instance_id)
            if machine is not None:
                self.observe(machine, asked_at)

    def save_ended(self, offer: Offer, error: errors.NoOfferError) -> None:
        """Add a machine that a rejected order left behind to the run's rentals.

        If it never ran, only its disk was charged.
        """
        run, now = self._state.run, self._state.now()
        rented_at = run.rented_at or now
        idle_at = min(now, rented_at + error.idle_s)
        rental = Rental(
            instance_id=error.ended,
            usd_per_hour=offer.usd_per_hour,
            rented_at=rented_at,
            released_at=now,
            meter=Meter(extras=offer.extras, idle_s=idle_at - rented_at, idle_at=idle_at),
        )
        self._state.save(rentals=bills.with_rental(run, rental))

    def is_gone(self) -> bool:
        """Return whether the provider has not listed the machine for as long as `policy` says.

        A failed list is not an absent machine.
        """
        now = self._state.now()
        # A step that was told so asks again: it is charged until it was first missed, and waited for once.
        since = self._state.run.meter.absent_at or now
        # A market's list may be late or incomplete; this computer's own is not.
        absent_s = 0.0 if self._services.provider.free else max(0.0, since + policy.ABSENT_S - now)

        def look() -> Instance | None:
            machine = self.own()
            if machine is None and self._state.run.meter.absent_at is None:
                with suppress(errors.StorageError):
                    self._state.save(meter=replace(self._state.run.meter, absent_at=since))
                    self._state.report("the machine is gone by its provider's list, which is asked again")
            return machine

        try:
            gone = self._search_until(look, absent_s) is None
        except errors.ProviderError:
            return False
        if gone:
            with suppress(errors.StorageError):
                self._state.save(meter=bills.disappeared(self._state.run.meter, since))
        return gone

    def has_none(self) -> bool:
        """Return whether the provider confirms twice that the run has no machine. False when it cannot be
        asked."""
        try:
            return not self._search_until(self.list_all, 0.0)
        except errors.ProviderError:
            return False

    def find(self) -> Instance | None:
        """Find the run's machine, even where the market's list is late.

        None: it was absent twice, and for as long as that list may lag. Raises ProviderError when the list
        is unknown.
        """
        return self._search_until(self.own, 0.0)

    def _search_until(self, look: Callable[[], _T], absent_s: float) -> _T:
        """Return what `look` finds; empty when two looks and all within `absent_s` seconds found nothing.

        A machine that was ordered a moment ago may appear in the list only later.
        """
        until = max(self._state.now() + absent_s, self._latest_listing_at())
        found = look()
        while not found:
            self._state.wait(2.0 if self._services.provider.list_lag_s else _FAST_POLL_INTERVAL_S)
            found = look()
            if self._state.now() >= until:
                break
        return found

    def _latest_listing_at(self) -> float:
        """Return the latest time at which a machine that was ordered, and has no known id yet, appears in
        the list."""
        run = self._state.run
        if self.was_order_rejected or run.instance_id is not None or run.rented_at is None:
            return 0.0
        return self.last_order_at + self._services.provider.list_lag_s
