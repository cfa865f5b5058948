"""boot(context): the box answers, its lease is armed, and it is the machine that was offered."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from launcher.core import Cause, Instance
from launcher.core.errors import (
    GoneError,
    HostKeyError,
    KeyNotAttachedError,
    NoBoxError,
    UnexplainedError,
    UnreachableError,
)
from launcher.core.phases import Result
from launcher.decisions import download_check, image_pull, offer_check, policy
from launcher.flow.context import RunContext
from launcher.flow.lease_end import explained, lost_end
from launcher.flow.phase_end import PhaseEnd
from launcher.flow.together import join_network
from launcher.gate.box_status import NO_LEASE, lease_of, missing_programs
from launcher.gate.reading import small_file
from launcher.ports import ChecksIdentity
from trainer.contract import layout

_PAUSE_S = 0.5
_TELL_S = 30.0
"""Progress within one state is told this often at most."""
_TELL_UNSEEN_S = 15.0
_TELL_QUEUED_S = 15.0
_TELL_QUEUED_FROM_S = 3.0
"""A turn that comes at once is not worth a word."""
_OFFER_CHECK_S = 150.0


@dataclass
class BootTimeouts:
    """How long a machine may take, by how far it is. All moments in epoch seconds."""

    began: float
    moved_at: float
    progress: str = "not listed yet"
    state: str = ""
    lease: str = ""
    running_since: float | None = None
    """As the provider says, while it does not answer."""
    answers_since: float | None = None
    boxless_since: float | None = None
    layer_at: float = -math.inf
    """Epoch seconds of the last progress of a layer of its image."""
    max_boot_s: float = policy.MAX_BOOT_S
    """Longest wait while layers arrive."""
    mistrusted_since: float | None = None
    mistrust: str = ""
    """Why who answers is not believed to be the machine."""
    rejected_since: float | None = None
    """It answers and does not accept the run's key, which its provider refused to attach."""
    rejection: str = ""
    queued_since: float | None = None
    """It waits for its turn."""
    queued_for: str = ""
    """What it waits for, as its provider says."""
    told_queued_for: str = ""
    blind: bool = False
    """The provider cannot be asked: that is no fault of the host."""
    watched: bool = False
    """It was seen while it was not ready yet."""
    told: str = ""
    told_at: float = -math.inf

    def waits(self, machine: Instance, now: float) -> str:
        """Note that the machine waits for its turn: its own limits begin when that comes.

        Returns what to say of it; empty when too soon after.
        """
        self.queued_since = self.queued_since or now
        self.began = self.moved_at = now
        self.running_since = self.answers_since = self.boxless_since = self.mistrusted_since = None
        self.queued_for, self.blind = machine.note, False
        waited_s = now - self.queued_since
        if waited_s < _TELL_QUEUED_FROM_S or now - self.told_at < _TELL_QUEUED_S:
            return ""
        self.told_at = now
        left_min = (policy.QUEUE_S - waited_s) / 60
        return f"waits for its turn: {machine.note}; {left_min:.0f} min more at most"

    def silent(self, machine: Instance, now: float) -> str:
        """Note that the machine does not answer.

        Returns what is new of it to tell; empty when too soon after.
        """
        self.queued_since = None
        began_this = machine.state != self.state
        progress = machine.state
        if machine.note and machine.state != "running":
            progress += f": {machine.note}"
        # A start that moves on is not stuck: the limit on standing still begins anew.
        if progress != self.progress:
            self.progress, self.state = progress, machine.state
            if not image_pull.is_retry(machine.note):
                self.moved_at = now
            if image_pull.is_layer(machine.note):
                self.layer_at = now
        if machine.state != "running":
            self.running_since = None
        elif self.running_since is None:
            self.running_since = now
        self.answers_since, self.blind = None, False
        if progress == self.told or not (began_this or now - self.told_at >= _TELL_S):
            return ""
        self.told, self.told_at = progress, now
        return progress

    def answers(self, lease: str, now: float) -> None:
        """Note that the box answered, with its lease in that state."""
        self.lease, self.running_since, self.queued_since, self.blind = lease, None, None, False
        self.mistrusted_since = self.boxless_since = self.rejected_since = None
        self.answers_since = self.answers_since or now

    def boxless(self, now: float) -> None:
        """Note that the machine answers, and has no box yet."""
        self.boxless_since, self.blind = self.boxless_since or now, False

    def mistrusts(self, error: HostKeyError, now: float) -> None:
        """Note that something answers that is not the machine, or not yet."""
        self.mistrust, self.blind = str(error), False
        self.mistrusted_since = self.mistrusted_since or now

    def rejects(self, error: KeyNotAttachedError, now: float) -> str:
        """Note that the machine rejects the run's key. Returns the message the first time, then nothing."""
        news = "" if self.rejected_since else str(error)
        self.rejection, self.rejected_since = str(error), self.rejected_since or now
        return news

    def unseen(self, why: str, now: float) -> str:
        """Note that nobody could look: only the longest limit goes on.

        Returns what to tell; mostly nothing.
        """
        self.running_since = self.answers_since = self.boxless_since = self.mistrusted_since = None
        self.moved_at, self.blind = now, True
        if why == self.told and now - self.told_at < _TELL_UNSEEN_S:
            return ""
        self.told, self.told_at = why, now
        left_s = max(0.0, self.began + self._boot_s(now) - now)
        return f"cannot check the machine: {why}; waits {left_s / 60:.0f} min more at most"

    def late(self, now: float) -> str:
        """Name the limit that was passed; empty while the machine may still come up."""
        # The most telling first: the longer limits are often over as well, and say less.
        limits = (
            (self.queued_since, policy.QUEUE_S, f"its turn did not come ({self.queued_for})"),
            (self.answers_since, policy.LEASE_PROOF_S, f"the lease is not armed but {self.lease}"),
            (self.boxless_since, policy.ONSTART_S, "it answers, but its onstart script did not run"),
            (self.rejected_since, policy.KEY_S, self.rejection),
            (self.mistrusted_since, policy.MISTRUST_S, self.mistrust),
            (self.running_since, policy.ANSWER_S, "it runs but does not answer"),
            (self.moved_at, policy.STILL_S, f"it makes no progress ({self.progress})"),
            (self.began, self._boot_s(now), f"it is not ready ({self.progress})"),
        )
        over = (
            f"{text} after {limit:.0f} s"
            for since, limit, text in limits
            if since is not None and now - since > limit
        )
        return next(over, "")

    @property
    def is_loading(self) -> bool:
        """True while nothing of the machine has run yet, as far as was seen."""
        seen = (self.running_since, self.answers_since, self.boxless_since, self.mistrusted_since)
        return all(since is None for since in seen)

    def _boot_s(self, now: float) -> float:
        """Return the longest wait for the machine: more while layers of its image arrive."""
        return self.max_boot_s if now - self.layer_at <= policy.LAYER_S else policy.BOOT_S


def boot(context: RunContext) -> PhaseEnd:
    """Wait for the machine, and accept it only when it can end itself and is what was offered."""
    timeouts = BootTimeouts(began=context.now(), moved_at=context.now())
    if not context.gang.is_alone:
        timeouts.max_boot_s = policy.BOOT_S  # the leases of the other nodes wait no longer
    while not (late := timeouts.late(context.now())):
        if (end := _given_up(context)) is not None:
            return end
        try:
            lease = _lease_state(context)
            if lease == "armed":
                _note_time(context, timeouts)
                _note_armed(context)
                return _accepted(context)
            if lease == NO_LEASE and (end := _not_started(context)) is not None:
                return end
            timeouts.answers(lease, context.now())
        except (UnexplainedError, UnreachableError, GoneError) as error:
            context.hang_up()
            if (end := _without_answer(context, timeouts, error)) is not None:
                return end
        timeouts.watched = True
        context.wait(_pause_s(timeouts, context.now()))
    end = PhaseEnd(result=Result.FAILED, cause=_cause_of(timeouts), detail=late)
    return explained(context, end, is_guess=timeouts.is_loading) if end.cause is Cause.HOST else end


def _without_answer(
    context: RunContext, timeouts: BootTimeouts, error: UnexplainedError | UnreachableError | GoneError
) -> PhaseEnd | None:
    """Note why the machine does not answer: `late` has a limit for each reason.

    Returns the end of the boot where it never will.
    """
    if isinstance(error, UnexplainedError):
        return explained(context, PhaseEnd(result=Result.FAILED, cause=error.cause, detail=str(error)))
    if isinstance(error, GoneError) and context.is_gone():
        return lost_end(context, "while it booted")
    if isinstance(error, HostKeyError):
        timeouts.mistrusts(error, context.now())
    elif isinstance(error, KeyNotAttachedError):
        if news := timeouts.rejects(error, context.now()):
            context.tell(news)
    elif isinstance(error, NoBoxError):
        timeouts.boxless(context.now())
    elif error.cause is Cause.PROVIDER:
        if news := timeouts.unseen(str(error), context.now()):
            context.tell(news)
    else:
        _tell_progress(context, timeouts)
    return None


def _pause_s(timeouts: BootTimeouts, now: float) -> float:
    """Who waits long in a queue is asked for more and more rarely."""
    if timeouts.queued_since is None:
        return _PAUSE_S
    return policy.queue_look_s(now - timeouts.queued_since)


def _cause_of(timeouts: BootTimeouts) -> Cause:
    """A host is not blamed for a provider that could not be asked about it, or that has given none."""
    if timeouts.blind or timeouts.rejected_since is not None:
        return Cause.PROVIDER
    return Cause.HOST if timeouts.queued_since is None else Cause.NO_OFFER


def _given_up(context: RunContext) -> PhaseEnd | None:
    """Return the end of a boot that is of no use any more: nobody wants it, or its job's time is over."""
    if context.is_stopping():
        return context.stopped("before its machine was ready")
    if (end := context.gang.end()) is not None:
        return end
    deadline = policy.deadline_of(context.spec)
    if deadline is None or context.now() < deadline:
        return None
    detail = "the deadline came before its machine was ready"
    return PhaseEnd(result=Result.FAILED, cause=Cause.TIME_LIMIT, detail=detail)


def _note_time(context: RunContext, timeouts: BootTimeouts) -> None:
    """How long the machine took is known only to whoever saw it become ready."""
    if timeouts.watched and context.run.rented_at is not None:
        context.save(boot_s=max(0.0, context.now() - context.run.rented_at))


def _note_armed(context: RunContext) -> None:
    """Its lease counts from then at the latest, by our own clock."""
    meter = context.run.meter
    if meter.armed_at is None:
        context.save(meter=replace(meter, armed_at=context.now()))


def unlike_its_offer(context: RunContext, machine: Instance) -> PhaseEnd | None:
    """Return the end of a run whose machine is worse than was offered, by what the provider lists."""
    if context.services.provider.free or context.run.offer is None:
        return None
    return _refused(offer_check.rented_otherwise(machine, context.run.offer, context.spec.resources))


def _accepted(context: RunContext) -> PhaseEnd:
    """Ends well when the machine is what was offered."""
    end = _unlike_by_itself(context)
    machine = context.own_machine()
    if machine is not None:
        end = end or unlike_its_offer(context, machine)
    if end is not None:
        return end
    join_network(context, context.remote())
    connection = context.remote().connection
    if isinstance(connection, ChecksIdentity):
        context.tell(connection.identity)
    context.tell("the lease is armed")
    return PhaseEnd(result=Result.OK)


def _unlike_by_itself(context: RunContext) -> PhaseEnd | None:
    """As `unlike_its_offer`, by what the box shows. A box that costs nothing is this computer."""
    if context.services.provider.free or context.run.offer is None:
        return None
    wanted, remote = context.spec.resources, context.remote()
    box = offer_check.read_box(remote.run(offer_check.COMMAND, timeout_s=_OFFER_CHECK_S).stdout)
    difference = offer_check.shows_otherwise(box, context.run.offer, wanted)
    # The other slots of a machine that is held use its GPUs, too; it was checked when it was rented.
    if not difference and wanted.gpus and context.services.provider.abilities.by_run is None:
        difference = offer_check.gpus_in_use(box, context.run.offer)
    if not difference and download_check.is_needed(context.spec):
        printed = remote.run(download_check.command(wanted), timeout_s=download_check.TIMEOUT_S).stdout
        difference = download_check.fault(printed, wanted)
    return _refused(difference)


def _refused(difference: str) -> PhaseEnd | None:
    if not difference:
        return None
    detail = f"the machine is not what was offered: {difference}"
    return PhaseEnd(result=Result.FAILED, cause=Cause.HOST, detail=detail)


def _tell_progress(context: RunContext, timeouts: BootTimeouts) -> None:
    machine, now = context.machine, context.now()
    if machine is None:
        return
    if machine.queued:
        if news := timeouts.waits(machine, now):
            # A diary of a day's queue would hold nothing else: what is said again is only shown.
            (context.mention if timeouts.told_queued_for == machine.note else context.tell)(news)
            timeouts.told_queued_for = machine.note
    elif news := timeouts.silent(machine, now):
        context.tell(news)


def _not_started(context: RunContext) -> PhaseEnd | None:
    """Return the end of a run whose image lacks what its start needs. No other machine would do better."""
    missing = missing_programs(small_file(context.remote(), layout.ONSTART_ERRORS))
    if not missing:
        return None
    detail = f"the image lacks {', '.join(missing)}, which the lease needs to start"
    return PhaseEnd(result=Result.FAILED, cause=Cause.SETUP, detail=detail)


def _lease_state(context: RunContext) -> str:
    """As its state file says; the onstart scripts are not there yet."""
    return lease_of(small_file(context.remote(), layout.LEASE_STATE))
