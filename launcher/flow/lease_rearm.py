"""Lease rearm: arms a lease again that was killed on the box."""

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
