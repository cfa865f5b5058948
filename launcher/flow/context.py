"""Run context: the state of one drive of a run: its row, driver lock, diary and machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from vastrun.launcher.core import Cause, Driver, Event, Instance, Phase, Progress, Run, UserRequest, bills
from vastrun.launcher.core.errors import GoneError, NoRoomError, ProviderError, StorageError, VastrunError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.phases import Result
from vastrun.launcher.decisions import policy
from vastrun.launcher.decisions.nodes import at_total_price, total_usd
from vastrun.launcher.flow.guarded_remote import GuardedRemote
from vastrun.launcher.flow.machines import StaleRows, find_machines, is_absent
from vastrun.launcher.flow.nodes import NodeGroup
from vastrun.launcher.flow.notifications import Notifications
from vastrun.launcher.flow.phase_result import PhaseResult, RunStopped
from vastrun.launcher.flow.progress import DISPLAY_INTERVAL_S, ProgressDisplay
from vastrun.launcher.flow.services import Services

_POLL_INTERVAL_S = 2.0
_FAST_POLL_INTERVAL_S = 0.2
"""Seconds between two looks at a provider whose list is never late."""
_REQUEST_POLL_INTERVAL_S = 0.1
"""Seconds between two looks at the user's requests in the ledger."""
_ABANDONED_PHASES = (Phase.BOOT, Phase.SHIP)
"""Phases that are abandoned once another node has failed. A training still has its outputs."""
_T = TypeVar("_T")


class RunContext:
    """The state of one drive. `run` always equals the row in the ledger."""

    def __init__(self, run: Run, spec: JobSpec, services: Services) -> None:
        self.run = run
        self._spec = spec
        self.services = services
        self.machine: Instance | None = None
        """The machine as last listed for a connection."""
        self.was_order_rejected = False
        """True if the last order was rejected: no machine is waited for."""
        self.last_order_at = services.clock.now()
        """Latest time at which a machine with an unknown id may have been ordered. An order may have
        waited long for its turn since the row noted it, and a launcher that died may have sent one until
        this one came."""
        self.machine_seen_at = 0.0
        """Time at which this launcher last saw the run's machine at its provider."""
        self.is_account_checked = False
        """True once the key was found to belong to the run's account."""
        self._remote: GuardedRemote | None = None
        self._connected: GuardedRemote | None = None
        """The shell that was opened last, whose connection the guard's thread may abort."""
        self._progress = ProgressDisplay(services.screen)
        self._ledger_request = (UserRequest.NONE, -math.inf)
        """The user's request in the ledger, and when it was read."""
        self._space_reported_in: Phase | None = None
        self._reported_unreadable: set[str] = set()
        self._stale_rows = StaleRows(services)
        self._reported_stale: set[str] = set()
        self._held_at = 0.0
        self.nodes = NodeGroup(run, spec, services.ledger, self.now)
        self.notifications = Notifications(spec, services.notifier, services.ledger, services.clock)
        self.start_grace_period()

    @property
    def spec(self) -> JobSpec:
        """The job; its machine may be kept no longer than until its deadline."""
        return policy.within_deadline(self._spec, self.run.meter.began_at or self.run.rented_at or self.now())

    def start_grace_period(self) -> None:
        """Give a launcher that finds a run past its limits some time to download what is there."""
        late = policy.exceeded_limit(self.spec, self.run, self.now()) is not None
        self._limits_count_from = self.now() + (policy.LATE_GRACE_S if late else 0.0)

    def save(self, **changes: Any) -> None:
        """Write the changes to the row. Raises HeldError when another launcher took over."""
        self.run = replace(self.run, **changes)
        self.hold()
        self.services.ledger.save(self.run, who=self.services.who)
        self.notifications.send_due(self.run, self.spent_usd)

    def hold(self) -> None:
        """Note that this launcher drives the run for a while longer. Raises HeldError.

        Once it drives, it must not take the run back from one that has driven it since: a laptop that slept
        would write what it knew into the row of a run that has ended.
        """
        renews, self._held_at = self._held_at > 0, self.now()
        driver = Driver(who=self.services.who, until=self._held_at + policy.DRIVER_TIMEOUT_S)
        self.services.ledger.hold(self.run.id, driver, renews=renews)

    def report(self, text: str) -> None:
        """Write a line to the diary and to the screen."""
        self.services.ledger.add_event(self.show_event(text))

    def show_event(self, text: str) -> Event:
        """Write a line to the screen alone."""
        now = self.services.clock.now()
        usd = bills.cost_usd(self.run, now)
        event = Event(run_id=self.run.id, at=now, phase=self.run.phase, text=text, usd=usd)
        # The user sees what the run costs; the diary is of this node alone.
        self.services.screen.event(replace(event, usd=self.spent_usd(now)))
        return event

    def show_log(self) -> None:
        """Download what is new in the log, and show it."""
        self.services.screen.log(self.new_log())

    def new_log(self) -> str:
        """Download what is new in the log. Without space for it here, it stays on the box."""
        try:
            return self.services.output_store.download_log(self.run, self.remote())
        except NoRoomError as error:
            self.report_no_space(error, "the log stays on the machine until there is space here")
            return ""

    def report_no_space(self, error: NoRoomError, what: str) -> None:
        """Report, once a phase, that this computer's disk is full, and the consequence."""
        if self._space_reported_in is not self.run.phase:
            self.report(f"{error}; {what}")
        self._space_reported_in = self.run.phase

    def user_request(self) -> UserRequest:
        """Return the strongest request of the user, from this keyboard or the ledger. It is for all nodes
        of a run.

        Called before each request to the box; the ledger, which may be on another computer, is read less
        often.
        """
        here, now = self.services.user_requests.current(), self.now()
        elsewhere, read_at = self._ledger_request
        if not 0 <= now - read_at < _REQUEST_POLL_INTERVAL_S:
            elsewhere = self.services.ledger.user_request(self.run.leader or self.run.id)
            self._ledger_request = (elsewhere, now)
        return here.or_stronger(elsewhere)

    def is_stopping(self) -> bool:
        """Return whether the user, or the run's batch, requested its end."""
        return self.user_request().cause is not None

    def stopped(self, when: str) -> PhaseResult:
        """Return the result of a run that is stopping, and never trained."""
        return PhaseResult(result=Result.FAILED, cause=self.user_request().cause, detail=f"stopped {when}")

    @property
    def is_in_grace_period(self) -> bool:
        """True while a run that was past its limits when this launcher came may still be downloaded."""
        return self.now() < self._limits_count_from

    def exceeded_limit(self) -> Cause | None:
        """Return the limit that was passed by this launcher's own count.

        None: no limit was passed, or the grace period is not over.
        """
        return None if self.is_in_grace_period else policy.exceeded_limit(self.spec, self.run, self.now())

    def raise_if_stopped(self) -> None:
        """Raise RunStopped when the user wants the machine ended at once, a limit is passed, or another node
        has failed while nothing is trained yet.

        Called before each request to the box, and while its response is awaited.
        """
        self._raise_if_over_limit()
        if self.run.phase in _ABANDONED_PHASES and (end := self.nodes.end()) is not None:
            raise RunStopped(end)

    def abort_if_stopped(self) -> None:
        """Abort the connection to the machine once the user, time or money ends the run. For the guard's
        thread.

        The request that waits for the machine then fails, and is not tried again: `raise_if_stopped` says
        why.
        """
        try:
            self._raise_if_over_limit()
        except RunStopped:
            if self._connected is not None:
                self._connected.abort()
        except VastrunError:  # the ledger cannot be read: the run's own thread meets that, too
            return

    def _raise_if_over_limit(self) -> None:
        if self.user_request() is UserRequest.DESTROY:
            raise RunStopped(
                PhaseResult(
                    result=Result.FAILED, cause=Cause.STOPPED, detail="destroyed immediately, as requested"
                )
            )
        cause = self.exceeded_limit()
        if cause is not None:
            detail = "past its limit, and its lease did not destroy it"
            raise RunStopped(PhaseResult(result=Result.FAILED, cause=cause, detail=detail))

    def _before_request(self) -> None:
        """Update the screen and check the limits; called before and during each request to the box."""
        self.show()
        self.raise_if_stopped()

    def show(self, progress: Progress | None = None) -> None:
        """Show the run's progress; time and cost advance even where nothing else does.

        Without `progress` it returns at once right after the last call: a box gets many requests a second.
        """
        now = self.now()
        if self._progress.is_due(self.run.phase, progress, now):
            shown = at_total_price(self.run, self.nodes.other_rows())
            self._progress.show(shown, progress, self.spent_usd(now), now)

    def spent_usd(self, now: float) -> float:
        """Return the dollars that the run cost so far, with all of its nodes."""
        return total_usd((self.run, *self.nodes.other_rows()), now)

    def wait(self, seconds: float) -> None:
        """Sleep, update the screen and keep the driver lock. Returns early on a user request."""
        slices = max(1, math.ceil(seconds / DISPLAY_INTERVAL_S))
        slice_s = max(0.0, seconds) / slices
        for _ in range(slices):
            began = self.now()
            self.services.clock.sleep(slice_s)
            self.services.check_nodes()
            self.show()
            if self.now() - began < slice_s / 2:  # the clock came back early: the user wants something
                break
        # Not each time: to hold the run is a write that waits for the disk.
        if self.now() - self._held_at > policy.DRIVER_TIMEOUT_S / 10:
            self.hold()
        self.notifications.send_due(self.run, self.spent_usd)

    def now(self) -> float:
        """Return the time, in epoch seconds."""
        return self.services.clock.now()

    def machines(self) -> list[Instance]:
        """List this run's machines, and destroy those that are not its own.

        Raises ProviderError when the list is unknown.
        """
        asked_at = self.now()
        found = [one for one in find_machines(self.run, self.services.provider) if not self._is_stale(one)]
        own = self._own(found)
        self._report_unreadable(own)
        # A disk that is full must not keep a machine from its end: the next row has it.
        for machine in own:
            with suppress(StorageError):
                self.meter(machine, asked_at)
        for machine in found:
            if machine not in own:
                self._destroy_other(machine, asked_at)
        return found

    def _is_stale(self, machine: Instance) -> bool:
        """Return whether the row is stale, and report it once; `vastrun reap` may destroy that machine."""
        why = self._stale_rows.reason(machine, self.run)
        if why and machine.id not in self._reported_stale:
            self._reported_stale.add(machine.id)
            with suppress(StorageError):
                self.report(f"the provider lists machine {machine.id} for this run, ignored: {why}")
        return bool(why)

    def _report_unreadable(self, own: Sequence[Instance]) -> None:
        new = {name for machine in own for name in machine.unreadable} - self._reported_unreadable
        if new:
            self._reported_unreadable |= new
            with suppress(StorageError):
                names = ", ".join(sorted(new))
                self.report(f"the provider lists values of the machine that make no sense, ignored: {names}")

    def own_machine(self) -> Instance | None:
        """Return the run's machine, without others that have its label. Raises ProviderError."""
        return next(iter(self._own(self.machines())), None)

    def _own(self, found: Sequence[Instance]) -> Sequence[Instance]:
        """Return at most one of them: the machine in the run's row, else the first."""
        if self.run.instance_id is None:
            return [machine for machine in found if machine.id not in bills.machine_ids(self.run)][:1]
        return [machine for machine in found if machine.id == self.run.instance_id]

    def _destroy_other(self, machine: Instance, asked_at: float) -> None:
        """Destroy a machine that the provider made late, or twice, and add its cost to the run's."""
        # It may be seen at several looks, and is reported and added to the rentals once.
        is_new = all(one.instance_id != machine.id for one in self.run.rentals)
        rental = bills.rental_of(self.run, machine, machine.asked_at or asked_at, self.now())
        with suppress(VastrunError):  # one that stays is seen again
            self.services.provider.destroy(machine.id)
            rental = replace(rental, released_at=self.now())
            if is_absent(self.services, machine.id):
                rental = replace(rental, meter=replace(rental.meter, absent_at=self.now()))
        with suppress(StorageError):
            self.save(rentals=bills.with_rental(self.run, rental))
            if is_new:
                price = f"${machine.usd_per_hour:.3f}/h"
                self.report(f"found another machine of this run, {machine.id} at {price}: destroying it")

    def meter(self, machine: Instance, asked_at: float) -> None:
        """Update the run's meter by what was seen of the machine.

        Counts from when the provider was asked: its response is of a moment after that, unknown how long
        before it arrived. Counted from the arrival, GPUs that started to run meanwhile would be charged
        too little.
        """
        meter = self.run.meter
        if meter.given_back_at is not None and is_absent(self.services, machine.id):
            if meter.absent_at is None:  # it ended by now; from here on the list is late
                self.save(meter=replace(meter, given_back_at=self.now(), absent_at=self.now()))
            return
        asked_at = self.machine_seen_at = machine.asked_at or asked_at
        run = bills.seen(self.run, machine, asked_at, self.now())
        if run == self.run:
            return
        former = self.run.usd_per_hour
        self.save(meter=run.meter, usd_per_hour=run.usd_per_hour, rented_at=run.rented_at, host=run.host)
        if run.usd_per_hour != former:
            self.report(f"the machine costs ${run.usd_per_hour:.3f}/h now, ${former:.3f}/h before")

    def refresh_meter(self) -> None:
        """Update the meter by the machine's own row: the list may be older."""
        if self.run.instance_id is None or self.services.provider.free:
            return
        asked_at = self.now()
        with suppress(ProviderError, StorageError):
            machine = self.services.provider.machine(self.run.instance_id)
            if machine is not None:
                self.meter(machine, asked_at)

    def remote(self) -> GuardedRemote:
        """Open a shell on this run's machine, once. Raises UnreachableError, GoneError."""
        if self._remote is None:
            self.machine = self.own_machine()
            if self.machine is None:
                raise GoneError(f"the provider lists no machine labelled {self.run.label}")
            self._remote = self.open_shell(self.machine)
        return self._remote

    def open_shell(self, machine: Instance) -> GuardedRemote:
        """Open a shell on a machine of the run; the caller closes it. Raises as `remote`."""
        self._connected = GuardedRemote(self.services.provider.connect(machine), self._before_request)
        return self._connected

    def disconnect(self) -> None:
        """Close the connection; the next `remote()` connects again."""
        if self._remote is not None:
            self._remote.close()
            self._remote = None

    def is_gone(self) -> bool:
        """Return whether the provider has not listed the machine for as long as `policy` says.

        A failed list is not an absent machine.
        """
        # A market's list may be late or incomplete; this computer's own is not.
        absent_s = 0.0 if self.services.provider.free else policy.ABSENT_S
        since = self.now()
        try:
            gone = self._search_until(self.own_machine, absent_s) is None
        except ProviderError:
            return False
        if gone:
            with suppress(StorageError):
                self.save(meter=bills.disappeared(self.run.meter, since))
        return gone

    def has_no_machine(self) -> bool:
        """Return whether the provider confirms twice that the run has no machine. False when it cannot be
        asked."""
        try:
            return not self._search_until(self.machines, 0.0)
        except ProviderError:
            return False

    def find_machine(self) -> Instance | None:
        """Find the run's machine, even where the market's list is late.

        None: it was absent twice, and for as long as that list may lag. Raises ProviderError when the list
        is unknown.
        """
        return self._search_until(self.own_machine, 0.0)

    def _search_until(self, look: Callable[[], _T], absent_s: float) -> _T:
        """Return what `look` finds; empty when two looks and all within `absent_s` seconds found nothing.

        A machine that was ordered a moment ago may appear in the list only later.
        """
        until = max(self.now() + absent_s, self._listed_by())
        found = look()
        while not found:
            self.wait(_POLL_INTERVAL_S if self.services.provider.list_lag_s else _FAST_POLL_INTERVAL_S)
            found = look()
            if self.now() >= until:
                break
        return found

    def _listed_by(self) -> float:
        """Return the latest time at which a machine that was ordered, and has no known id yet, appears in
        the list."""
        if self.was_order_rejected or self.run.instance_id is not None or self.run.rented_at is None:
            return 0.0
        return self.last_order_at + self.services.provider.list_lag_s
