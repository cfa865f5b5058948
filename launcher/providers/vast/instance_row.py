"""InstanceRow: one instance on Vast, parsed column by column; whether it starts, runs, failed or stopped.

Also direct addresses that its row lacks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from vastrun.launcher.core import LABEL_PREFIX, Cause, ExtraRates, Instance
from vastrun.launcher.core.errors import ProviderError, UnexplainedError, UnreachableError
from vastrun.launcher.gate import caps
from vastrun.launcher.providers.vast import columns
from vastrun.launcher.providers.vast.errors import no_response_error

_UP = "success, running"
"""Prefix of `status_msg` of a running container."""

Address = tuple[str, int]
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


@dataclass(frozen=True, kw_only=True)
class InstanceRow(Instance):
    """One instance with Vast's own columns. Only the id is guaranteed; all other values may be unknown."""

    actual_status: str
    """Status as the host last reported it; it lags by minutes."""
    cur_state: str
    intended_status: str
    next_state: str
    status_msg: str
    is_bid: bool
    end_date: float
    """End of the host's contract in epoch seconds; 0 when unknown."""
    direct: Address | None
    """Address of its sshd without a proxy."""
    proxy: Address | None

    @property
    def is_stopped(self) -> bool:
        """True when it is stopped and stays so: as was asked for, or because its GPUs are another's."""
        return self.cur_state == "stopped" and "stopped" in (self.intended_status, self.next_state)

    @classmethod
    def of(cls, row: Any, asked_at: float | None = None) -> InstanceRow:
        """Parse a row. Raises UnreachableError when it has no id, since it may be one of this ledger's."""
        if (instance_id := id_of(row)) is None:
            named = row.get("id") if isinstance(row, dict) else None
            raise no_response_error(f"the row of instance {named} cannot be read")
        reader = columns.ColumnReader(row)
        address, direct_port = (
            reader.read("public_ipaddr", columns.text),
            reader.read("ports", columns.ssh_port),
        )
        proxy_host, proxy_port = reader.read("ssh_host", columns.text), reader.read("ssh_port", columns.port)
        total_usd, gpu_usd = reader.read("dph_total", columns.number), reader.read("dph_base", columns.number)
        status, status_msg = (
            reader.read("actual_status", columns.text),
            reader.read("status_msg", columns.end_of_text),
        )
        cur_state, intended = (
            reader.read("cur_state", columns.text),
            reader.read("intended_status", columns.text),
        )
        up_s, direct = reader.read("uptime_mins", columns.seconds), (address, direct_port)
        state = _state(status, status_msg, (cur_state, intended), is_up=up_s is not None or all(direct))
        return cls(
            id=instance_id,
            label=reader.read("label", columns.text)[: caps.LABEL_CHARACTERS],
            state=state,
            # A negative price would grow the budget with each hour.
            usd_per_hour=max(0.0, total_usd),
            rented_at=reader.read("start_date", columns.number),
            extras=ExtraRates(
                storage_usd_per_hour=max(0.0, total_usd - gpu_usd) if gpu_usd else 0.0,
                down_usd_per_gb=reader.read("inet_down_cost", columns.number),
                up_usd_per_gb=reader.read("inet_up_cost", columns.number),
            ),
            # Only its disk is billed: it is loading, lost its GPUs, or its host is offline.
            idle=state == "loading" or cur_state == "stopped" or status == "offline",
            up_s=up_s,
            down_gb=reader.read("inet_down_billed", columns.billed_gb),
            up_gb=reader.read("inet_up_billed", columns.billed_gb),
            down_mbps=max(0.0, reader.read("inet_down", columns.number)),
            up_mbps=max(0.0, reader.read("inet_up", columns.number)),
            host=reader.read("machine_id", columns.text),
            note=status_msg.splitlines()[-1] if status_msg else "",
            gpu_name=reader.read("gpu_name", columns.gpu_name),
            gpus=reader.read("num_gpus", columns.whole),
            disk_gb=max(0.0, reader.read("disk_space", columns.number)),
            cuda=reader.read("cuda_max_good", columns.cuda),
            actual_status=status,
            cur_state=cur_state,
            intended_status=intended,
            next_state=reader.read("next_state", columns.text),
            status_msg=status_msg,
            is_bid=reader.read("is_bid", bool),
            end_date=reader.read("end_date", columns.number),
            direct=direct if all(direct) else None,
            proxy=(proxy_host, proxy_port) if proxy_host and proxy_port else None,
            unreadable=tuple(reader.unreadable),
            asked_at=asked_at,
        )


def _state(status: str, message: str, states: Collection[str], *, is_up: bool) -> str:
    """Return `running`, `loading`, or Vast's status."""
    if status not in ("", "created", "loading"):
        return status
    # Its container may run although the row says loading: Vast charges for it (2026-09).
    serves = "stopped" not in states and (message.startswith(_UP) or is_up)
    return "running" if serves else "loading"


def id_of(row: Any) -> str | None:
    """Return the id of a row; None when it has no valid one."""
    value = row.get("id") if isinstance(row, dict) else None
    try:
        found = int(value) if isinstance(value, int | float | str) and value is not True else 0
    except (ValueError, OverflowError):
        return None
    return str(found) if 0 < found < caps.VAST_NUMBER else None


def is_destroyed(row: Any) -> bool:
    """Return whether a row is that of a machine that was destroyed, and is no machine any more."""
    if not isinstance(row, dict):
        return False
    state = row.get("cur_state")
    # The host's status lags; while the state of the contract is `running`, it may be billed.
    return state == "destroyed" or (row.get("actual_status") == "destroyed" and state != "running")


def rows_in(answer: Any) -> list[Any]:
    """Return the rows of a list of instances, which may also be an object of rows or of lists."""
    # Three shapes are documented or were seen; an overlooked one looks like an account without machines.
    if isinstance(answer, Mapping):
        return [answer] if "id" in answer else list(answer.values())
    if not isinstance(answer, list):
        return []
    return [row for item in answer for row in (item if isinstance(item, list) else [item])]


def has_own_label(row: Any) -> bool:
    """Return whether a row has vastrun's label, or is unreadable."""
    # An unreadable row may be a machine of a run: it counts as ours, so that the list is called incomplete.
    label = row.get("label") if isinstance(row, dict) else LABEL_PREFIX
    return str(label or "").startswith(LABEL_PREFIX)


class DirectAddresses:
    """Reads port maps from Vast's list: by its documentation, the row of a single instance has none."""

    def __init__(self, listed: Callable[[], Sequence[Any]], now: Callable[[], float]) -> None:
        """`listed`: queries the list. `now`: epoch seconds."""
        self._listed = listed
        self._now = now
        self._found: dict[str, Address] = {}
        self._asked_at: dict[str, float] = {}

    def with_direct(self, row: InstanceRow) -> InstanceRow:
        """Add the machine's direct address from the list to a row that lacks it."""
        if row.direct is not None or row.state != "running":
            return row
        now = self._now()
        if row.id not in self._found and now - self._asked_at.get(row.id, -math.inf) >= 30.0:
            self._asked_at[row.id] = now
            # Without a list the proxy's address remains.
            with suppress(UnreachableError):
                for listed in self._listed():
                    if id_of(listed) == row.id and (direct := InstanceRow.of(listed).direct) is not None:
                        self._found[row.id] = direct
        return replace(row, direct=self._found.get(row.id))


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
