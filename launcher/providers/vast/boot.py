"""Diagnosis of an instance's start and stop by its row: starting, running, failed or stopped, and why."""

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
_STARTING_STATES = ("", "created", "loading", "scheduling", "rebooting", "recycling")
"""States of a start. Other states lag by minutes: a box listed as `exited` or `offline` may be reachable."""
OFFLINE_S = 300.0
"""Seconds after which an offline host with an unreachable box counts as lost; it may reboot before that."""


def fault(row: InstanceRow) -> ProviderError | None:
    """Return why this instance does not start; None while no fault is known.

    UnreachableError is transient: the host pulls the image again and is not to blame.
    """
    # A box that runs tells itself what is wrong; the message may be of an earlier start.
    if row.actual_status == "running":
        return None
    message = row.status_msg.replace("\n", " ")[-300:]
    cause = cause_in(row.status_msg)
    if cause is Cause.USER_ERROR:
        return ProviderError(
            f"the image cannot be pulled: {message}", hint="check image: in the job file", cause=cause
        )
    if cause is Cause.PROVIDER:
        return UnreachableError(f"the registry limits how often images are pulled: {message}", cause=cause)
    if row.state == "loading" and row.is_stopped:
        return UnexplainedError(
            f"machine {row.host} does not start: {message or 'never scheduled'}", cause=Cause.HOST
        )
    return None


def cause_in(text: str) -> Cause | None:
    """Return the cause in a status or a host's log, unless it is the host; None: it names no other."""
    # A missing image fails on every host, and must not count against this one.
    table = ((_IMAGE, Cause.USER_ERROR), (_REGISTRY_LIMIT, Cause.PROVIDER))
    return next((cause for pattern, cause in table if pattern.search(text)), None)


def may_be_reachable(row: InstanceRow, now: float) -> bool:
    """Return whether the box may be reachable.

    Vast listed a running machine as loading for an hour (2026-09). So a machine with a direct address is
    tried at once; one behind the proxy, which answers before the machine does, after its usual start.
    """
    if row.state == "running" or row.actual_status not in _STARTING_STATES:
        return True
    is_late = row.cur_state == "running" and 0 < row.rented_at < now - 300.0
    return not row.is_stopped and (row.direct is not None or is_late)


def progress(row: InstanceRow) -> str:
    """Return the progress of its start in a few words."""
    message = row.status_msg.splitlines()[-1] if row.status_msg else ""
    return f"{row.actual_status or 'created'}: {message}" if message else row.state


def stop_error(row: InstanceRow, *, credit_usd: float, now: float) -> ProviderError:
    """Return why the instance was stopped, as an error with its cause."""
    # Without credit Vast stops all machines; all other signs may follow from that.
    if credit_usd <= 0:
        return ProviderError(
            f"Vast stopped instance {row.id}: the account's credit is used up",
            hint="add some at https://cloud.vast.ai/billing/",
            cause=Cause.PROVIDER,
        )
    if 0 < row.end_date <= now + 60.0:
        why, cause = f"machine {row.host} is gone: its host's contract ended", Cause.LOST
    # After the contract: a bid on a host that leaves was not outbid, and a higher one would not help.
    elif row.is_bid:
        why = f"outbid at ${row.usd_per_hour:.3f}/h on machine {row.host}"
        cause = Cause.PREEMPTED
    else:
        why, cause = f"instance {row.id} was stopped, but not by this launcher", Cause.LOST
    return ProviderError(why, cause=cause)
