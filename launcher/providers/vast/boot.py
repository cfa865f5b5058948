"""What an instance's row says of its start and its stop: on its way, up, never to be up, stopped; and why."""

from __future__ import annotations

import re

from vastrun.launcher.core import Cause
from vastrun.launcher.core.errors import ProviderError, UnexplainedError, UnreachableError
from vastrun.launcher.providers.vast.instance_row import InstanceRow

_IMAGE = re.compile(
    r"manifest for \S+ not found|manifest unknown|no matching manifest|pull access denied|\bdenied: "
    r"|access to the resource is denied|\bunauthorized\b|failed to resolve reference"
    r"|repository does not exist|invalid reference format",
    re.IGNORECASE,
)
_REGISTRY_LIMIT = re.compile(r"toomanyrequests|429 too many requests|pull rate limit", re.IGNORECASE)
_HOST = re.compile(
    r"OCI runtime create failed|failed to inject CDI devices|failed to start containers"
    r"|unexpected EOF|no space left on device|docker_build\(\) error|error pulling image configuration"
    r"|port is already allocated|GPU error, unable to start instance|NVML|driver/library version mismatch"
    r"|error response from daemon",
    re.IGNORECASE,
)
_ON_ITS_WAY = ("", "created", "loading", "scheduling", "rebooting", "recycling")
"""The others lag by minutes: a box that reads `exited` or `offline` may answer."""
_USUAL_START_S = 300.0
"""Seconds after the rent in which most machines have started."""
OFFLINE_S = 300.0
"""A host that Vast calls offline for this long, while its box is silent too, is given up. It may reboot."""
_CLOCK_SKEW_S = 60.0


def fault(row: InstanceRow) -> ProviderError | None:
    """Return why this instance does not come up; None while nothing is known to be wrong.

    An UnreachableError passes: the host pulls again, and is not to blame.
    """
    if row.actual_status == "running":
        return None
    said = row.status_msg.replace("\n", " ")[-300:]
    cause = cause_in(row.status_msg)
    if cause is Cause.USER_ERROR:
        return ProviderError(
            f"the image cannot be pulled: {said}", hint="check image: in the job file", cause=cause
        )
    if cause is Cause.PROVIDER:
        return UnreachableError(f"the registry limits how often images are pulled: {said}", cause=cause)
    if cause is Cause.HOST:
        return ProviderError(f"machine {row.machine_id} does not start: {said}", cause=cause)
    if row.state == "loading" and row.is_stopped:
        return UnexplainedError(
            f"machine {row.machine_id} does not start: {said or 'it was never scheduled'}", cause=Cause.HOST
        )
    return None


def cause_in(text: str) -> Cause | None:
    """Return the cause of a failed start by a status or a host log; None: it does not say."""
    # First the image: a name that does not exist fails on any host, and must not count against this one.
    table = ((_IMAGE, Cause.USER_ERROR), (_REGISTRY_LIMIT, Cause.PROVIDER), (_HOST, Cause.HOST))
    return next((cause for pattern, cause in table if pattern.search(text)), None)


def may_answer(row: InstanceRow, now: float) -> bool:
    """Tell whether it is worth trying to reach the box.

    A machine was seen to serve for an hour while Vast listed it as loading (2026-09): one that has a direct
    address is tried at once, one behind the proxy, which answers before the machine does, after a while.
    """
    if row.state == "running" or row.actual_status not in _ON_ITS_WAY:
        return True
    is_late = row.cur_state == "running" and 0 < row.start_date < now - _USUAL_START_S
    return not row.is_stopped and (row.direct is not None or is_late)


def progress(row: InstanceRow) -> str:
    """Say in a few words how far its start is."""
    said = row.status_msg.splitlines()[-1] if row.status_msg else ""
    return f"{row.actual_status or 'created'}: {said}" if said else row.state


def stop_error(row: InstanceRow, *, credit_usd: float, now: float) -> ProviderError:
    """Return what stopped it, with its cause."""
    # Without credit Vast stops everything: the other signs are then its consequences.
    if credit_usd <= 0:
        return ProviderError(
            f"Vast stopped instance {row.id}: the account's credit is used up",
            hint="add some at https://cloud.vast.ai/billing/",
            cause=Cause.PROVIDER,
        )
    if 0 < row.end_date <= now + _CLOCK_SKEW_S:
        why, cause = f"the host took machine {row.machine_id} back: its contract ended", Cause.LOST
    elif row.is_bid:
        why = f"somebody outbid ${row.usd_per_hour:.3f}/h on machine {row.machine_id}"
        cause = Cause.PREEMPTED
    else:
        why, cause = f"instance {row.id} was stopped, and not by this launcher", Cause.LOST
    return ProviderError(why, cause=cause)


def offline_error(row: InstanceRow) -> ProviderError:
    """Make the error of a host that is gone, and has been for a while."""
    return ProviderError(
        f"machine {row.machine_id} has been offline for {OFFLINE_S / 60:.0f} min, says Vast", cause=Cause.LOST
    )
