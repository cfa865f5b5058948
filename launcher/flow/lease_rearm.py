"""rearm(): a lease that somebody on the box has killed is at work again; whoever looks sees to it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from vastrun.contract import layout
from vastrun.launcher.core import BoxStatus, Instance, Run
from vastrun.launcher.decisions import policy
from vastrun.launcher.flow.services import Services
from vastrun.launcher.ports import Remote

if TYPE_CHECKING:
    from vastrun.launcher.core.job import JobSpec

_TIMEOUT_S = 60.0


def is_disarmed(box_status: BoxStatus) -> bool:
    """Tell whether no lease would end the box, as far as it can be seen."""
    return box_status.lease in ("dead", "none")


def rearm(run: Run, spec: JobSpec, machine: Instance, remote: Remote, services: Services) -> str:
    """Arm the box's lease again; in words, how that went.

    It counts from when the machine began to run, by our own count: what is written on the box may be forged.
    Raises UnreachableError, GoneError.
    """
    if run.offer is None:
        return "its lease was killed"
    # The script is written anew: who killed the lease may have changed it as well.
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
