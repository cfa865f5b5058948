"""Lease watch: when the lease ends the box, whether the money lasts until then, and arming it again.

Apart from lease_expiry.py, because `status` imports this, and nothing that drives a run.
"""

from __future__ import annotations

import math
import shlex
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vastrun.contract import layout
from vastrun.launcher.core import BoxStatus, Instance, Run, bills
from vastrun.launcher.core.errors import ProviderError
from vastrun.launcher.core.market import ENDED
from vastrun.launcher.decisions import policy
from vastrun.launcher.flow.services import Services
from vastrun.launcher.ports import Remote

if TYPE_CHECKING:
    from vastrun.launcher.core.job import JobSpec
    from vastrun.launcher.flow.context import RunContext


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
    now = services.clock.now()
    variables = policy.lease_env(policy.lease_of(spec, run.offer)) | {
        "LEASE_AGE_S": str(math.ceil(max(0.0, now - (run.meter.began_at or run.rented_at or now)))),
        "VASTRUN_PROVIDER": services.provider.name,
        "VASTRUN_INSTANCE": machine.id,
        "CONTAINER_ID": machine.id,
    }
    values = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    done = remote.run(f"env {values} bash {layout.REARM}", timeout_s=60.0)
    if done.exit_code == 0:
        return "its lease was killed; a new one is armed"
    return f"its lease was killed, and a new one cannot be armed: {done.stderr.strip()[-200:]}"


@dataclass
class LeaseWatch:
    """The lease of a training's box, as seen from poll to poll."""

    ends_at: float | None = None
    """Time at which the lease ends the box, as the box says, by the launcher's clock: it may be earlier
    than planned."""
    metering_due_at: float = 0.0
    """Time at which the provider is next asked what the machine costs."""
    _rearmed_at: float = -math.inf

    def observe(self, box_status: BoxStatus, now: float) -> None:
        """Record when the lease ends, as the box reports it."""
        if box_status.lease == "armed" and box_status.lease_ends_at is not None:
            self.ends_at = now + box_status.lease_ends_at - box_status.at

    def rearm_if_killed(self, context: RunContext, box_status: BoxStatus, remote: Remote) -> None:
        """Arm a killed lease again. Reported once, even if the box reports a killed lease repeatedly."""
        machine, due = context.machine, context.now() - self._rearmed_at >= policy.REARM_S
        if machine is None or machine.state == ENDED or not is_disarmed(box_status) or not due:
            return
        is_first = self._rearmed_at == -math.inf
        self._rearmed_at = context.now()
        result = rearm(context.run, context.spec, machine, remote, context.services)
        if is_first:
            context.report(result)

    def is_over_budget(self, context: RunContext) -> bool:
        """Return whether the job's money is spent: the lease counts hours only and does not know about
        traffic."""
        now = context.now()
        if context.services.provider.free or now < self.metering_due_at <= now + bills.WATCHED_S:
            return False
        self.metering_due_at = now + bills.WATCHED_S
        # A list that failed is no reason to stop a training: the lease still bounds it.
        with suppress(ProviderError):
            context.machines.list_all()
        ends_at = self._earliest_end(context)
        return ends_at is not None and policy.is_money_spent(
            context.spec, context.machines.confirmed_run(), ends_at - now
        )

    def _earliest_end(self, context: RunContext) -> float | None:
        """Return when the lease ends the box: by the launcher's count, or earlier, as the box reports."""
        if context.run.offer is None:
            return None
        own = policy.lease_ends_at(context.run, policy.lease_of(context.spec, context.run.offer))
        moments = (None if context.is_in_grace_period else own, self.ends_at)
        return min((moment for moment in moments if moment is not None), default=None)
