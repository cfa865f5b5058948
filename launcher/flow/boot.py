"""Boot phase: wait, each stage for its time, until the box answers with its lease armed; check the offer."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace

from vastrun.contract import layout
from vastrun.launcher.core import Cause, Instance, errors
from vastrun.launcher.core.errors import HostKeyError, KeyNotAttachedError
from vastrun.launcher.decisions import offer_check, policy
from vastrun.launcher.flow.context import RunContext
from vastrun.launcher.flow.lease_expiry import gone_result, move_end, with_host_log
from vastrun.launcher.flow.node_sync import check_network
from vastrun.launcher.flow.run_state import OK, PhaseResult, failed
from vastrun.launcher.gate import box_reader
from vastrun.launcher.ports import ChecksIdentity

_LAYER = re.compile(
    r": (Pulling fs layer|Downloading|Verifying Checksum|Download complete|Extracting|Pull complete)"
)
"""Line of Docker that reports progress of an image layer."""
_WORKING = re.compile(rf"{_LAYER.pattern}|: (Waiting|Already exists)|^(Digest|Status): |^success, running")
"""Line that names a step of a start, which may stand for long on a slow host."""
_DIGITS = re.compile(r"\d+")
_MAX_TEXTS = 1000
"""Max. number of different texts: one that changes without end is no progress."""


@dataclass
class BootTimeouts:
    """Time limits of one boot, by its state. All moments are epoch seconds."""

    started_at: float
    progress_at: float
    progress: str = "not listed yet"
    state: str = ""
    lease: str = ""
    running_since: float | None = None
    """Time since which the provider lists it as running, while it does not answer."""
    answers_since: float | None = None
    no_box_since: float | None = None
    texts: set[str] = field(default_factory=set)
    """Texts so far, without numbers: a countdown, or an error that alternates, is no progress."""
    is_working: bool = True
    """True unless it reports something that names no step of a start."""
    layer_at: float = -math.inf
    """Epoch seconds of the last progress of a layer of its image."""
    max_boot_s: float = policy.MAX_BOOT_S
    """Longest wait while layers arrive."""
    untrusted_since: float | None = None
    untrusted_reason: str = ""
    """Reason why whatever answers is not trusted to be the machine."""
    rejected_since: float | None = None
    """Time since which it rejects the run's key, which its provider refused to attach."""
    rejection: str = ""
    queued_since: float | None = None
    """Time since which it waits for its turn."""
    queued_for: str = ""
    """The provider's note on what it waits for."""
    reported_queued_for: str = ""
    is_provider_down: bool = False
    """True while the provider cannot be asked, which is no fault of the host."""
    was_seen_booting: bool = False
    """True once it was seen while not ready."""
    reported: str = ""
    reported_at: float = -math.inf

    def note_queued(self, machine: Instance, now: float) -> str:
        """Note that the machine waits for its turn: its own limits start when that comes.

        Returns the message to report; empty if the last one was a moment ago.
        """
        self.queued_since = self.queued_since or now
        self.started_at = self.progress_at = now
        self.running_since = self.answers_since = self.no_box_since = self.untrusted_since = None
        self.queued_for, self.is_provider_down = machine.note, False
        waited_s = now - self.queued_since
        if waited_s < 3.0 or now - self.reported_at < 15.0:
            return ""
        self.reported_at = now
        left_min = (policy.QUEUE_S - waited_s) / 60
        return f"waits for its turn: {machine.note}; {left_min:.0f} min more at most"

    def note_silent(self, machine: Instance, now: float) -> str:
        """Note that the machine does not answer.

        Returns the message to report; empty if the last one was a moment ago.
        """
        self.queued_since = None
        is_new_state = machine.state != self.state
        progress = machine.state
        if machine.note and machine.state != "running":
            progress += f": {machine.note}"
        # A start that moves on is not stuck: the limit on standing still starts again.
        if progress != self.progress:
            self.progress, self.state = progress, machine.state
            self.is_working = progress == machine.state or _WORKING.search(machine.note) is not None
            text = _DIGITS.sub("", progress)
            if self.is_working or (text not in self.texts and len(self.texts) < _MAX_TEXTS):
                self.texts.add(text)
                self.progress_at = now
            if _LAYER.search(machine.note) is not None:
                self.layer_at = now
        self.running_since = (self.running_since or now) if machine.state == "running" else None
        self.answers_since, self.is_provider_down = None, False
        if progress == self.reported or not (is_new_state or now - self.reported_at >= 30.0):
            return ""
        self.reported, self.reported_at = progress, now
        return progress

    def note_answer(self, lease: str, now: float) -> None:
        """Note that the box answered, with its lease in that state."""
        self.lease, self.running_since, self.queued_since, self.is_provider_down = lease, None, None, False
        self.untrusted_since = self.no_box_since = self.rejected_since = None
        self.answers_since = self.answers_since or now

    def note_no_box(self, now: float) -> None:
        """Note that the machine answers, and has no box yet."""
        self.no_box_since, self.is_provider_down = self.no_box_since or now, False

    def note_untrusted(self, error: HostKeyError, now: float) -> None:
        """Note that something answers which is not the machine, or not yet."""
        self.untrusted_reason, self.is_provider_down = str(error), False
        self.untrusted_since = self.untrusted_since or now

    def note_rejected(self, error: KeyNotAttachedError, now: float) -> str:
        """Note that the machine rejects the run's key. Returns the message the first time, then nothing."""
        news = "" if self.rejected_since else str(error)
        self.rejection, self.rejected_since = str(error), self.rejected_since or now
        return news

    def note_provider_error(self, why: str, now: float) -> str:
        """Note that the provider could not be asked: only the longest limit continues.

        Returns the message to report; mostly empty.
        """
        self.running_since = self.answers_since = self.no_box_since = self.untrusted_since = None
        self.progress_at, self.is_provider_down = now, True
        if why == self.reported and now - self.reported_at < 15.0:
            return ""
        self.reported, self.reported_at = why, now
        left_s = max(0.0, self.started_at + self._boot_s(now) - now)
        return f"cannot check the machine: {why}; waits {left_s / 60:.0f} min more at most"

    def exceeded_limit(self, now: float) -> str:
        """Name the limit that was passed; empty while the machine may still come up."""
        # The most telling first: the longer limits are often over as well, and say less.
        limits = (
            (self.queued_since, policy.QUEUE_S, f"its turn did not come ({self.queued_for})"),
            (self.answers_since, policy.LEASE_PROOF_S, f"the lease is not armed but {self.lease}"),
            (self.no_box_since, policy.ONSTART_S, "it answers, but its onstart script did not run"),
            (self.rejected_since, policy.KEY_S, self.rejection),
            (self.untrusted_since, policy.HOST_KEY_WAIT_S, self.untrusted_reason),
            (self.running_since, policy.ANSWER_S, "it runs but does not answer"),
            (self.progress_at, self._progress_s, f"it makes no progress ({self.progress})"),
            (self.started_at, self._boot_s(now), f"it is not ready ({self.progress})"),
        )
        over = (
            f"{text} after {limit:.0f} s"
            for since, limit, text in limits
            if since is not None and now - since > limit
        )
        return next(over, "")

    @property
    def is_loading(self) -> bool:
        """True while the machine was not seen to run anything yet."""
        seen = (self.running_since, self.answers_since, self.no_box_since, self.untrusted_since)
        return all(since is None for since in seen)

    @property
    def _progress_s(self) -> float:
        """Longest wait for progress: short once it says something else than the steps of a start."""
        return policy.NO_PROGRESS_S if self.is_working else policy.STALLED_S

    def _boot_s(self, now: float) -> float:
        """Return the longest wait for the machine: more while layers of its image arrive."""
        return self.max_boot_s if now - self.layer_at <= policy.LAYER_S else policy.BOOT_S


def boot(context: RunContext) -> PhaseResult:
    """Wait for the machine, and accept it only when it can end itself and is what was offered."""
    timeouts = BootTimeouts(started_at=context.now(), progress_at=context.now())
    if not context.nodes.is_alone:
        timeouts.max_boot_s = policy.BOOT_S  # the leases of the other nodes wait no longer
    while not (exceeded_limit := timeouts.exceeded_limit(context.now())):
        if (end := _abandoned_result(context)) is not None:
            return end
        try:
            # The onstart scripts are not there yet.
            lease = box_reader.parse_lease_state(_small_file(context, layout.LEASE_STATE))
            # Nothing is uploaded before: a machine without a lease would stay rented if this launcher died.
            if lease == "armed":
                if timeouts.was_seen_booting and context.run.rented_at is not None:
                    context.save(boot_s=max(0.0, context.now() - context.run.rented_at))
                # The lease counts from then at the latest, by this computer's clock.
                meter = context.run.meter
                if meter.armed_at is None:
                    context.save(meter=replace(meter, armed_at=context.now()))
                return _accept(context)
            if lease == box_reader.NO_LEASE and (end := _missing_programs_result(context)) is not None:
                return end
            timeouts.note_answer(lease, context.now())
        except (errors.UnexplainedError, errors.UnreachableError, errors.GoneError) as error:
            context.disconnect()
            if (end := _note_no_answer(context, timeouts, error)) is not None:
                return end
        timeouts.was_seen_booting = True
        # The longer a machine waits in a queue, the longer is the pause.
        since = timeouts.queued_since
        context.wait(0.5 if since is None else policy.queue_poll_interval_s(context.now() - since))
    end = failed(_cause_of(timeouts), exceeded_limit)
    return with_host_log(context, end, is_guess=timeouts.is_loading) if end.cause is Cause.HOST else end


def _note_no_answer(
    context: RunContext,
    timeouts: BootTimeouts,
    error: errors.UnexplainedError | errors.UnreachableError | errors.GoneError,
) -> PhaseResult | None:
    """Note why the machine does not answer: `exceeded_limit` has a limit for each reason.

    Returns the result of the boot where it never will.
    """
    if isinstance(error, errors.UnexplainedError):
        return with_host_log(context, failed(error.cause, str(error)))
    if isinstance(error, errors.GoneError) and context.machines.is_gone():
        return gone_result(context)
    if isinstance(error, errors.HostKeyError):
        timeouts.note_untrusted(error, context.now())
    elif isinstance(error, errors.KeyNotAttachedError):
        if news := timeouts.note_rejected(error, context.now()):
            context.report(news)
    elif isinstance(error, errors.NoBoxError):
        timeouts.note_no_box(context.now())
    elif error.cause is Cause.PROVIDER:
        if news := timeouts.note_provider_error(str(error), context.now()):
            context.report(news)
    else:
        _report_progress(context, timeouts)
    return None


def _cause_of(timeouts: BootTimeouts) -> Cause:
    """Return the cause of a boot that failed. A host is not blamed where its provider did not answer or
    gave no machine."""
    if timeouts.is_provider_down or timeouts.rejected_since is not None:
        return Cause.PROVIDER
    return Cause.HOST if timeouts.queued_since is None else Cause.NO_OFFER


def _abandoned_result(context: RunContext) -> PhaseResult | None:
    """Return the result of a boot that is not needed any more: a node failed, or the deadline has passed."""
    if (end := context.nodes.end()) is not None:
        return end
    deadline = policy.deadline_of(context.spec)
    if deadline is None or context.now() < deadline:
        return None
    return failed(Cause.TIME_LIMIT, "the deadline came before its machine was ready")


def check_against_offer(context: RunContext, machine: Instance) -> PhaseResult | None:
    """Return the result of a run whose machine is worse than its offer, by what the provider lists; None:
    it is not."""
    if context.services.provider.free or context.run.offer is None:
        return None
    return _mismatch_result(offer_check.listing_mismatch(machine, context.run.offer, context.spec.resources))


def _accept(context: RunContext) -> PhaseResult:
    """Return OK when the machine is what was offered."""
    end = _check_box(context)
    machine = context.machines.own()
    if machine is not None:
        end = end or check_against_offer(context, machine)
    if end is not None:
        return end
    check_network(context, context.remote())
    if not move_end(context):
        return failed(Cause.PROVIDER, "the provider would end the machine before its limits do")
    connection = context.remote().connection
    if isinstance(connection, ChecksIdentity):
        context.report(connection.identity)
    context.report("the lease is armed")
    return OK


def _check_box(context: RunContext) -> PhaseResult | None:
    """Compare the box with its offer by its own tools, as `check_against_offer`. A free box is this
    computer."""
    if context.services.provider.free or context.run.offer is None:
        return None
    requested, remote = context.spec.resources, context.remote()
    box = offer_check.read_box(remote.run(offer_check.COMMAND, timeout_s=150.0).stdout)
    difference = offer_check.box_mismatch(box, context.run.offer, requested)
    # The other slots of a machine that is held use its GPUs, too; it was checked when it was rented.
    if not difference and requested.gpus and context.services.provider.abilities.by_run is None:
        difference = offer_check.gpus_in_use(box, context.run.offer)
    if not difference and offer_check.is_needed(context.spec):
        printed = remote.run(offer_check.command(requested), timeout_s=offer_check.TIMEOUT_S).stdout
        difference = offer_check.fault(printed, requested)
    return _mismatch_result(difference)


def _mismatch_result(difference: str) -> PhaseResult | None:
    if not difference:
        return None
    return failed(Cause.HOST, f"the machine is not what was offered: {difference}")


def _report_progress(context: RunContext, timeouts: BootTimeouts) -> None:
    machine, now = context.machine, context.now()
    if machine is None:
        return
    if machine.queued:
        if news := timeouts.note_queued(machine, now):
            # A diary of a day's queue would hold nothing else: what is said again is only shown.
            (context.show_event if timeouts.reported_queued_for == machine.note else context.report)(news)
            timeouts.reported_queued_for = machine.note
    elif news := timeouts.note_silent(machine, now):
        context.report(news)


def _missing_programs_result(context: RunContext) -> PhaseResult | None:
    """Return the result of a run whose image lacks what its start needs. No other machine would do better."""
    missing = box_reader.parse_missing_programs(_small_file(context, layout.ONSTART_ERRORS))
    if not missing:
        return None
    return failed(Cause.SETUP, f"the image lacks {', '.join(missing)}, which the lease needs to start")


def _small_file(context: RunContext, path: str) -> bytes:
    """Read a small file of the box; empty while it comes too slowly."""
    with suppress(errors.SliceOverError), context.time_slice(policy.LEASE_PROOF_S):
        return box_reader.fetch_small_file(context.remote(), path)
    return b""
