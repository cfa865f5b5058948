"""Run state: the row of a driven run, its phase's result, its other nodes, its diary, screen and clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vastrun.launcher.core import Cause, Driver, Event, MachineEnd, Phase, Progress, Run, UserRequest, bills
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.labels import label_of, member_id
from vastrun.launcher.core.phases import BEFORE_TRAINING, Result
from vastrun.launcher.core.runs import attempts_until
from vastrun.launcher.core.secrets import values_in
from vastrun.launcher.decisions import policy
from vastrun.launcher.decisions.deadlines import RemainingLease
from vastrun.launcher.decisions.nodes import at_total_price, first_failed, total_usd
from vastrun.launcher.flow.services import Services
from vastrun.launcher.notifications import DiaryNotifier, Notification, NotificationKind, kinds_due
from vastrun.launcher.ports import Ledger


@dataclass(frozen=True, kw_only=True)
class PhaseResult:
    """Result of a step, with its cause."""

    result: Result
    cause: Cause | None = None
    detail: str = ""
    node: int | None = None
    """The node that failed, where the run has several; None: the node that ran the step."""
    noted: bool = False
    """True if `detail` names that node already: it comes from the node's own row."""
    failed_in: Phase | None = None
    """The phase in which that node failed; None: the current one."""


OK = PhaseResult(result=Result.OK)


class Detached(Exception):
    """Ends a drive whose user left: the row says where the next launcher continues."""


class RunStopped(Exception):
    """Stops all requests to the box: the user requested its end, a limit was passed, or another node
    failed."""

    def __init__(self, end: PhaseResult) -> None:
        super().__init__(end.detail)
        self.end = end


def failed(cause: Cause | None, detail: str) -> PhaseResult:
    """Return the result of a step that failed on the run's own node."""
    return PhaseResult(result=Result.FAILED, cause=cause, detail=detail)


def provider_terminated(end: MachineEnd) -> PhaseResult:
    """Return the result of a step whose machine the provider has ended, in its words."""
    return PhaseResult(result=Result.LOST, cause=end.cause, detail=end.text, node=end.node)


DISPLAY_INTERVAL_S = 1.0
"""Seconds after which the same progress is shown again, with its new time and cost."""


class RunState:
    """The row of a run that this launcher drives. `run` always equals the row in the ledger."""

    def __init__(self, run: Run, spec: JobSpec, services: Services) -> None:
        self.run = run
        self._spec = spec
        self.services = services
        self._known: tuple[Phase | None, Progress] = (None, Progress())
        """The last progress, and its phase."""
        self._shown: tuple[Phase | None, float] = (None, -math.inf)
        """The phase in which something was shown last, and when."""
        self._held_at = 0.0
        self._ledger_request = (UserRequest.NONE, -math.inf)
        """The user's request in the ledger, and when it was read."""
        self._heard = UserRequest.NONE
        """The user's request at the end of the last wait."""
        self.nodes = NodeGroup(run, spec, services.ledger, self.now)
        self._earlier: Sequence[Run] | None = None
        self.notifications = DiaryNotifier(spec, services.notifier, services.ledger)

    @property
    def spec(self) -> JobSpec:
        """The job; its machine may be kept no longer than until its deadline."""
        return policy.within_deadline(self._spec, self.run.meter.began_at or self.run.rented_at or self.now())

    def save(self, **changes: Any) -> None:
        """Write the changes to the row. Raises HeldError when another launcher took over."""
        if changes.get("detail"):
            changes["detail"] = self.services.mask.hide(changes["detail"])
        self.run = replace(self.run, **changes)
        self.hold()
        self.services.ledger.save(self.run, who=self.services.who)
        self.notify()

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
        shown = self.services.mask.hide(text)
        event = Event(run_id=self.run.id, at=now, phase=self.run.phase, text=shown, usd=usd)
        # The user sees what the run costs; the diary is of this node alone.
        self.services.screen.report(replace(event, usd=self.spent_usd(now)))
        return event

    def secrets(self) -> bytes:
        """Return the job's secrets, as `Packer`; from now on nothing that is shown of the run holds them."""
        content = self.services.packer.secrets(self.spec, self.run)
        self.services.mask.learn(values_in(content))
        return content

    def show(self, progress: Progress | None = None) -> None:
        """Show the run's progress; time and cost advance even where nothing else does.

        Without `progress` it returns at once right after the last call: a box gets many requests a second.
        """
        now, phase = self.now(), self.run.phase
        shown_phase, shown_at = self._shown
        # Half of it, so that a poll that comes a little early is not skipped.
        recent = 0 <= now - shown_at < DISPLAY_INTERVAL_S / 2
        if progress is None and shown_phase is phase and recent:
            return
        if progress is not None:
            self._known = (phase, progress)
        self._shown = (phase, now)
        known_phase, known = self._known
        shown = known if known_phase is phase else Progress()
        run = at_total_price(self.run, self.nodes.other_rows())
        self.services.screen.progress(run, shown, usd=self.spent_usd(now))

    def spent_usd(self, now: float) -> float:
        """Return the dollars that the run cost so far, with all of its nodes."""
        return total_usd((self.run, *self.nodes.other_rows()), now)

    def user_request(self) -> UserRequest:
        """Return the strongest request of the user, from this keyboard or the ledger. It is for all nodes
        of a run.

        Called before each request to the box; the ledger, which may be on another computer, is read less
        often.
        """
        here, now = self.services.user_requests.current(), self.now()
        elsewhere, read_at = self._ledger_request
        if not 0 <= now - read_at < 0.1:
            elsewhere = self.services.ledger.user_request(self.run.leader or self.run.id)
            self._ledger_request = (elsewhere, now)
        return here.or_stronger(elsewhere)

    def raise_if_requested(self) -> None:
        """Raise Detached when the user leaves, RunStopped when the machine has to end at once, or the run
        before it trains.

        Every wait calls this, whoever waits. A phase is safe to repeat, so that it may be left anywhere.
        """
        if self.services.user_requests.current() is UserRequest.DETACH:
            raise Detached
        request, phase = self.user_request(), self.run.phase
        if request is UserRequest.DESTROY and phase is not Phase.DESTROY:
            raise RunStopped(failed(Cause.STOPPED, "destroyed immediately, as requested"))
        if request.cause is not None and phase in BEFORE_TRAINING:
            raise RunStopped(failed(request.cause, f"stopped before it could {phase.value}"))

    def wait(self, seconds: float) -> None:
        """Sleep, update the screen and keep the driver lock. Returns early on a new request of the user.

        Raises as `raise_if_requested`.
        """
        slices = max(1, math.ceil(seconds / DISPLAY_INTERVAL_S))
        for _ in range(slices):
            self.services.clock.sleep(max(0.0, seconds) / slices)
            self.services.check_nodes()
            self.show()
            self.raise_if_requested()
            heard, self._heard = self._heard, self.user_request()
            if heard is not self._heard:
                break
        # Not each time: to hold the run is a write that waits for the disk.
        if self.now() - self._held_at > policy.DRIVER_TIMEOUT_S / 10:
            self.hold()
        self.notify()

    def notify(self, lease: RemainingLease | None = None) -> None:
        """Send the notifications that are due; with `lease` the one that the machine is left to it."""
        now, limit_usd, ledger = self.now(), self._spec.limits.usd, self.services.ledger

        def due(sent: Mapping[str, float]) -> list[Notification]:
            usd = self.spent_usd(now)
            if self._earlier is None:
                self._earlier = attempts_until(self.run, ledger.get)[1:]
            earlier = self._earlier
            kinds = kinds_due(self.run, limit_usd, usd, sent, is_retry=bool(earlier))
            if lease:
                kinds = [kind for kind in (NotificationKind.OUT_OF_REACH,) if kind not in sent]
            earlier_usd = sum(total_usd((one, *ledger.runs(leader=one.id)), now) for one in earlier if kinds)
            notification = Notification(
                kind=NotificationKind.END,
                run=self.run,
                at=now,
                usd=usd,
                limit_usd=limit_usd,
                lease=lease,
                earlier=earlier,
                earlier_usd=earlier_usd,
            )
            return [replace(notification, kind=kind) for kind in kinds]

        self.notifications.send(self.run.id, due)

    def now(self) -> float:
        """Return the time, in epoch seconds."""
        return self.services.clock.now()


class NodeGroup:
    """The other nodes of a run; empty where it has one."""

    def __init__(self, run: Run, spec: JobSpec, ledger: Ledger, now: Callable[[], float]) -> None:
        self._run, self._ledger, self._now = run, ledger, now
        self._nodes = spec.nodes
        self._other_rows: Sequence[Run] = ()
        self._read_at = -math.inf

    @property
    def is_alone(self) -> bool:
        """True if the run has one node."""
        return self._nodes == 1

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of all machines of the run, by node; empty where it has one."""
        if self.is_alone:
            return ()
        leader = self._run.leader or self._run.id
        return tuple(label_of(member_id(leader, node), self._run.ledger) for node in range(self._nodes))

    def other_rows(self, *, fresh: bool = False) -> Sequence[Run]:
        """Return the rows of the other nodes; `fresh`: read them now."""
        if self.is_alone:
            return ()
        # Asked before each request to the box, and the ledger may be on another computer.
        if fresh or not 0 <= self._now() - self._read_at < 0.5:
            leader = self._run.leader or self._run.id
            rows = [self._ledger.get(leader), *self._ledger.runs(leader=leader)]
            self._other_rows = [row for row in rows if row.id != self._run.id]
            self._read_at = self._now()
        return self._other_rows

    def end(self, *, fresh: bool = False) -> PhaseResult | None:
        """Return the result that ends all nodes because one has failed; None: none has."""
        first = first_failed(self.other_rows(fresh=fresh))
        if first is None:
            return None
        return PhaseResult(
            result=Result.FAILED,
            cause=first.cause,
            detail=first.detail,
            node=first.node if first.failed_node is None else first.failed_node,
            noted=True,
            failed_in=first.failed_in,
        )
