"""Scheduled end: the provider's own servers destroy a run's machine, where they can, after all of its limits.

It is the fourth way in which a machine ends, and needs none of vastrun's programs.
"""

from __future__ import annotations

from dataclasses import replace

from vastrun.launcher.core.errors import AuthError, ProviderError
from vastrun.launcher.decisions import policy
from vastrun.launcher.flow.context import RunContext


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
