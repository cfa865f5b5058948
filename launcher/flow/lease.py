"""Lease of a run: its deadline, the machine that it ended, and the watch that arms it again."""

from __future__ import annotations

import math
import shlex
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vastrun.contract import layout
from vastrun.launcher.core import BoxStatus, Cause, Instance, MachineEnd, Run, bills
from vastrun.launcher.core.errors import ProviderError, UnreachableError, VastrunError
from vastrun.launcher.core.market import ENDED
from vastrun.launcher.decisions import policy
from vastrun.launcher.flow.context import RunContext
from vastrun.launcher.flow.run_state import PhaseResult, machine_lost, provider_terminated
from vastrun.launcher.flow.services import Services
from vastrun.launcher.gate.text import last_lines, one_line
from vastrun.launcher.ports import Remote

if TYPE_CHECKING:
    from vastrun.launcher.core.job import JobSpec

_TIMEOUT_S = 60.0
_POLL_INTERVAL_S = 1.0
_MAX_ENDING_S = 60.0
"""Max. seconds to wait for a provider that is ending a machine to report why."""


def is_deadline_due(context: RunContext) -> bool:
    """Return whether the deadline has passed by this computer's clock.

    The lease counts from when its machine started to run.
    """
    offer = context.run.offer
    return offer is not None and policy.is_deadline_due(
        context.spec, policy.lease_of(context.spec, offer), context.now()
    )


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
    done = remote.run(command, timeout_s=_TIMEOUT_S)
    if done.exit_code != 0:
        context.report(f"the machine did not accept the deadline: {done.stderr.strip()[-200:]}")


def find_machine_end(context: RunContext, wait_s: float = 0.0) -> MachineEnd | None:
    """Return why the provider ended the machine; None: it did not, or did not say so within `wait_s`.

    Waits while the provider is just ending the machine: what it reports then is the cause of the run.
    """
    ends, machine_id = context.services.provider.abilities.ends, context.run.instance_id
    if ends is None or machine_id is None:
        return None
    began = context.now()
    while True:
        max_wait_s = wait_s
        try:
            if (end := ends.end_of(machine_id)) is not None:
                return end
        except UnreachableError:  # it is just being ended: see `ReportsTermination`
            max_wait_s = max(wait_s, _MAX_ENDING_S)
        except ProviderError:
            pass
        if context.now() - began >= max_wait_s:
            return None
        context.wait(_POLL_INTERVAL_S)


def gone_result(context: RunContext) -> PhaseResult:
    """Return the result of a training whose machine is gone."""
    return provider_terminated(
        find_machine_end(context) or MachineEnd(cause=Cause.LOST, text=lost_text(context))
    )


def lost_result(context: RunContext, when: str) -> PhaseResult:
    """Return the result of a phase in which the machine disappeared; `when`: `in phase boot`."""
    end = find_machine_end(context)
    return machine_lost(when) if end is None else provider_terminated(end)


def lost_text(context: RunContext) -> str:
    """Describe why the machine is gone."""
    offer, rented_at = context.run.offer, context.run.rented_at
    if offer is not None and rented_at is not None:
        lease = policy.lease_of(context.spec, offer)
        # No lease ends a machine earlier: before that, it was lost for another reason.
        if context.now() >= rented_at + min(lease.life_s, lease.collect_s):
            return (
                "the machine no longer exists; its lease may have expired before the outputs were downloaded"
            )
    return "the machine no longer exists; the provider no longer lists it"


MAX_HOST_LOG_WAIT_S = 5.0
"""Max. seconds to wait for the host's log: the machine is paid for meanwhile."""
_LINES, _CHARS = 10, 200
_SHOWN = 5


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
    for line in lines[-_SHOWN:]:
        context.report(f"host log: {line}")
    cause = provider.cause_in("\n".join(lines))
    matching = [line for line in lines if cause is not None and provider.cause_in(line) is cause]
    detail = f"{end.detail}; its host's log says: {(matching or lines)[-1]}"
    return replace(end, detail=detail, cause=(cause if is_guess else None) or end.cause)


def is_disarmed(box_status: BoxStatus) -> bool:
    """Return whether no lease would end the box, by its status."""
    return box_status.lease in ("dead", "none")


def rearm(run: Run, spec: JobSpec, machine: Instance, remote: Remote, services: Services) -> str:
    """Arm the box's lease again and return a message with the outcome.

    It counts from when the machine started to run, by the launcher's records: files on the box may be
    forged.
    Raises UnreachableError, GoneError.
    """
    if run.offer is None:
        return "its lease was killed"
    # The script is written again: whatever killed the lease may have changed it as well.
    remote.write(layout.LEASE_SCRIPT, services.packer.lease().encode())
    variables = policy.lease_env(policy.lease_of(spec, run.offer)) | {
        "LEASE_AGE_S": f"{policy.lease_age_s(run, services.clock.now()):.0f}",
        "VASTRUN_PROVIDER": services.provider.name,
        "VASTRUN_INSTANCE": machine.id,
        "CONTAINER_ID": machine.id,
    }
    words = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    done = remote.run(f"env {' '.join(words)} bash {layout.REARM}", timeout_s=_TIMEOUT_S)
    if done.exit_code == 0:
        return "its lease was killed; a new one is armed"
    return f"its lease was killed, and a new one cannot be armed: {done.stderr.strip()[-200:]}"


@dataclass
class LeaseWatch:
    """The lease of a training's box, as seen from poll to poll."""

    ends_at: float | None = None
    """Time at which the lease ends the box, as the box says, by the launcher's clock: it may be earlier
    than planned."""
    _rearmed_at: float = -math.inf
    _metered_at: float = 0.0

    def observe(self, box_status: BoxStatus, now: float) -> None:
        """Record when the lease ends, as the box reports it."""
        if box_status.lease == "armed" and box_status.lease_ends_at is not None:
            self.ends_at = now + box_status.lease_ends_at - box_status.at

    def rearm_if_killed(self, context: RunContext, box_status: BoxStatus, remote: Remote) -> None:
        """Arm a killed lease again. Reported once, even if the box reports a killed lease repeatedly."""
        due = context.now() - self._rearmed_at >= policy.REARM_S
        if context.machine is None or not is_disarmed(box_status) or not due:
            return
        if context.machine.state == ENDED:
            return
        is_first = self._rearmed_at == -math.inf
        self._rearmed_at = context.now()
        result = rearm(context.run, context.spec, context.machine, remote, context.services)
        if is_first:
            context.report(result)

    def is_over_budget(self, context: RunContext) -> bool:
        """Return whether the job's money is spent: the lease counts hours only and does not know about
        traffic."""
        now = context.now()
        if context.services.provider.free or 0 <= now - self._metered_at < bills.WATCHED_S:
            return False
        self._metered_at = now
        # A list that failed is no reason to stop a training: the lease still bounds it.
        with suppress(ProviderError):
            context.machines.list_all()
        ends_at = self._earliest_end(context)
        return ends_at is not None and policy.is_money_spent(context.spec, context.run, ends_at - now)

    def _earliest_end(self, context: RunContext) -> float | None:
        """Return when the lease ends the box: by the launcher's count, or earlier, as the box reports."""
        if context.run.offer is None:
            return None
        own = policy.lease_ends_at(context.run, policy.lease_of(context.spec, context.run.offer))
        moments = (None if context.is_in_grace_period else own, self.ends_at)
        return min((moment for moment in moments if moment is not None), default=None)
