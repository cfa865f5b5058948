"""Ends of a machine: a run's deadline, how long outputs stay, why a machine is gone, and its scheduled end.

The scheduled end is the fourth way in which a machine ends, and needs none of vastrun's programs: the
provider's own servers destroy it, where they can, after all of the limits of its run.
"""

from __future__ import annotations

import shlex
from dataclasses import replace

from vastrun.contract import layout
from vastrun.launcher.core import Cause, MachineEnd, Phase
from vastrun.launcher.core.errors import AuthError, ProviderError, UnreachableError, VastrunError
from vastrun.launcher.core.phases import Result
from vastrun.launcher.decisions import policy
from vastrun.launcher.flow.context import RunContext
from vastrun.launcher.flow.lease_watch import is_disarmed
from vastrun.launcher.flow.run_state import PhaseResult, RunStopped, provider_terminated
from vastrun.launcher.gate.box_reader import fetch_status
from vastrun.launcher.gate.text import last_lines, one_line
from vastrun.launcher.ports import Remote

MAX_HOST_LOG_WAIT_S = 5.0
"""Max. seconds to wait for the host's log: the machine is paid for meanwhile."""
_LINES, _CHARS = 10, 200


def outputs_until(context: RunContext) -> float:
    """Return until when the lease leaves the outputs of an ended training on the machine.

    It counts from the end of the training, which may be long before a launcher came. Where the machine does
    not say so, from the start of the phase.
    """
    run, now = context.run, context.now()
    collect_s = 0.0 if run.offer is None else policy.lease_of(context.spec, run.offer).collect_s
    until = run.phase_at + collect_s
    try:
        status = fetch_status(context.remote())
    except (ProviderError, RunStopped):  # the next request says so, too
        return until
    left_s = None if is_disarmed(status) else policy.download_left_s(status)
    return until if left_s is None else min(until, now + left_s)


def set_deadline(context: RunContext, remote: Remote) -> None:
    """Have the machine end itself at the job's deadline, even without a launcher.

    Raises UnreachableError, GoneError.
    """
    deadline, offer, machine = policy.deadline_of(context.spec), context.run.offer, context.machine
    if deadline is None or offer is None or machine is None:
        return
    # Seconds from now, no moment: the clock of the machine may be wrong.
    left_s = max(1.0, deadline - context.now())
    grace_s = min(left_s, policy.lease_of(context.spec, offer).grace_s)
    variables = {
        "VASTRUN_PROVIDER": context.services.provider.name,
        "VASTRUN_INSTANCE": machine.id,
        "CONTAINER_ID": machine.id,
    }
    words = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    command = f"env {' '.join(words)} bash {layout.DEADLINE} {left_s:.0f} {grace_s:.0f}"
    done = remote.run(command, timeout_s=60.0)
    if done.exit_code != 0:
        context.report(f"the machine did not accept the deadline: {done.stderr.strip()[-200:]}")


def find_machine_end(context: RunContext, wait_s: float = 0.0) -> MachineEnd | None:
    """Return why the provider ended the machine; None: it did not, or did not say so within `wait_s`.

    Waits while the provider is just ending the machine: what it reports then is the cause of the run.
    """
    end_of, machine_id = context.services.provider.abilities.end_of, context.run.instance_id
    if end_of is None or machine_id is None:
        return None
    began = context.now()
    while True:
        max_wait_s = wait_s
        try:
            if (end := end_of(machine_id)) is not None:
                return end
        except UnreachableError:  # it is just being ended: see `Abilities.end_of`
            max_wait_s = max(wait_s, 60.0)
        except ProviderError:
            pass
        if context.now() - began >= max_wait_s:
            return None
        context.wait(1.0)


def gone_result(context: RunContext) -> PhaseResult:
    """Return the result of a step whose machine is gone."""
    text = "the machine no longer exists; the provider no longer lists it"
    return provider_terminated(find_machine_end(context) or MachineEnd(cause=Cause.LOST, text=text))


def with_outputs_lost(context: RunContext, end: PhaseResult) -> PhaseResult:
    """Return the result of a lost machine with its own cause where the program had ended, or may have."""
    run, now = context.run, context.now()
    is_of_machine = end.result is Result.LOST or end.cause is Cause.OUTPUTS_LOST
    if not is_of_machine or run.phase not in (Phase.TRAIN, Phase.COLLECT) or run.offer is None:
        return end
    text = "the program had ended, and its outputs were not downloaded"
    if not context.has_program_ended:
        if end.cause is not Cause.LOST or not policy.may_have_ended(context.spec, run, run.offer, now):
            return end
        hours = (now - (run.meter.answered_at or run.phase_at)) / 3600
        text = f"not seen for {hours:.1f} h, in which the program may have ended"
    return replace(end, cause=Cause.OUTPUTS_LOST, detail=f"{text}; {end.detail}")


def with_host_log(context: RunContext, end: PhaseResult, *, is_guess: bool = True) -> PhaseResult:
    """Return the result of a boot with the last lines of its host's log, where the provider shows it.

    `is_guess`: nothing else says who is to blame, so the log decides. The first reason comes first.
    """
    provider, machine = context.services.provider.abilities.host_log, context.machine
    if provider is None or machine is None:
        return end
    try:
        lines = last_lines(provider.host_log(machine.id, within_s=MAX_HOST_LOG_WAIT_S), _LINES, _CHARS)
    except VastrunError as error:
        context.report(f"its host's log cannot be read: {one_line(str(error))}")
        return end
    if not lines:
        context.report("its host's log is empty")
        return end
    for line in lines[-5:]:
        context.report(f"host log: {line}")
    cause = provider.cause_in("\n".join(lines))
    matching = [line for line in lines if cause is not None and provider.cause_in(line) is cause]
    detail = f"{end.detail}; its host's log says: {(matching or lines)[-1]}"
    return replace(end, detail=detail, cause=(cause if is_guess else None) or end.cause)


def schedule_end(context: RunContext) -> bool:
    """Schedule the end of the run's machine, or move it; return False where the provider did not.

    A failure is one line of the log: the machine still ends by its lease, its supervisor and the launcher.
    """
    ender, run = context.services.provider.abilities.ends_later, context.run
    if ender is None or run.instance_id is None or run.offer is None:
        return True
    try:
        ender.schedule_end(run.instance_id, policy.latest_end(context.spec, run, run.offer) - context.now())
    except (AuthError, ProviderError) as error:
        context.report(f"{context.services.provider.name} itself will not end this machine later: {error}")
        context.has_scheduled_end = False
        return False
    return True


def move_end(context: RunContext) -> bool:
    """Move the scheduled end once the lease is armed; return False when it would come too early now.

    It usually moves forward: until then, the machine might have loaded for longer.
    """
    run = context.run
    if run.offer is None or not context.has_scheduled_end or schedule_end(context):
        return True
    former = replace(run, meter=replace(run.meter, armed_at=None))
    scheduled, latest = (policy.latest_end(context.spec, one, run.offer) for one in (former, run))
    return latest <= scheduled


def cancel_end(context: RunContext, machine_id: str) -> None:
    """Remove the scheduled end of a machine that is gone. A failure is one line of the log."""
    ender = context.services.provider.abilities.ends_later
    if ender is None or not context.has_scheduled_end:
        return
    try:
        ender.cancel_end(machine_id)
    except (AuthError, ProviderError) as error:
        context.report(f"the scheduled end of machine {machine_id} is left for vastrun reap: {error}")
