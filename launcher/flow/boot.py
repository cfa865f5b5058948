"""Boot phase: wait until the box answers with its lease armed, and check that it is what was offered."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from vastrun.contract import layout
from vastrun.launcher.core import Cause, Instance, errors
from vastrun.launcher.decisions import offer_check, policy
from vastrun.launcher.flow.boot_timeouts import BootTimeouts
from vastrun.launcher.flow.context import RunContext
from vastrun.launcher.flow.lease_expiry import gone_result, move_end, with_host_log
from vastrun.launcher.flow.node_sync import check_network
from vastrun.launcher.flow.run_state import OK, PhaseResult, failed
from vastrun.launcher.gate import box_reader
from vastrun.launcher.ports import ChecksIdentity


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
