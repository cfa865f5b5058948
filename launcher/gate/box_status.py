"""Parsers for the output of `status.sh` (BoxStatus) and for the state file of the lease."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from vastrun.contract.outcome import EpochSeconds, ExitCode, Name, RankNumber, Seconds, Step
from vastrun.contract.records import MaxLength, Range, RecordError, Text, read_json
from vastrun.launcher.core import BoxStatus, RankStatus
from vastrun.launcher.core.errors import BoxError
from vastrun.launcher.gate import caps

Lease = Literal["armed", "proving", "ending", "dead", "none"]

NO_LEASE = "not there"
NEEDED_TO_START = ("bash", "base64", "gzip", "flock", "mv")
"""Programs that a container needs at its start to arm the lease."""
_NOT_FOUND = re.compile(r"\b(\w{1,20}): (?:command )?not found", re.ASCII)
"""Message of bash, dash and busybox for a missing program."""

_Bytes = Annotated[int, Range(0, 2**53)]


@dataclass(frozen=True, kw_only=True)
class _Rank:
    rank: RankNumber
    pid: Annotated[int, Range(0, 2**31)] | None = None
    step: Step | None = None
    activity: Name | None = None
    age_s: Seconds | None = None


@dataclass(frozen=True, kw_only=True)
class _Supervisor:
    step: Step | None = None
    steps: Step | None = None
    loss: float | None = None
    ranks: Annotated[tuple[_Rank, ...], MaxLength(caps.RANKS)] = ()


@dataclass(frozen=True, kw_only=True)
class _Status:
    """The line that `onstart/status.sh` prints; docs/box.md."""

    now: EpochSeconds
    box: Literal["idle", "running", "ended", "dead"]
    exit_code: ExitCode | None = None
    lease: Lease = "none"
    lease_ends_at: EpochSeconds | None = None
    onstart_step: Annotated[str, Text(100)] | None = None
    log_bytes: _Bytes = 0
    free_mb: _Bytes | None = None
    supervisor: _Supervisor | None = None


def parse_box_status(printed: str) -> BoxStatus:
    """Parse the output of one `status.sh`. Raises BoxError for invalid output."""
    try:
        status: _Status = read_json(_Status, printed)
    except RecordError as error:
        raise BoxError(f"the machine sent an invalid status: {error}") from error
    supervisor = status.supervisor or _Supervisor()
    if len({rank.rank for rank in supervisor.ranks}) < len(supervisor.ranks):
        raise BoxError("the machine sent an invalid status: a rank is listed twice")
    return BoxStatus(
        at=status.now,
        box=status.box,
        exit_code=status.exit_code,
        lease=status.lease,
        lease_ends_at=status.lease_ends_at,
        onstart_step=status.onstart_step or "",
        step=supervisor.step or 0,
        steps=supervisor.steps or 0,
        loss=supervisor.loss,
        log_bytes=status.log_bytes,
        free_mb=status.free_mb,
        ranks=tuple(map(_rank_status, supervisor.ranks)),
    )


def parse_lease_state(state_file: bytes) -> str:
    """Parse the state of a lease in `lease.state`; "not there" when the file has none."""
    facts: dict[str, Any] = dict(
        line.split("=", 1) for line in state_file.decode("utf-8", "replace").split("\n") if "=" in line
    )
    state = facts.get("state", NO_LEASE)
    return state if state in get_args(Lease) else NO_LEASE


def parse_missing_programs(errors: bytes) -> list[str]:
    """Parse `onstart.err`: the programs that the shell did not find when the box started."""
    found = _NOT_FOUND.findall(errors.decode("utf-8", "replace"))
    return [name for name in NEEDED_TO_START if name in found]


def _rank_status(rank: _Rank) -> RankStatus:
    return RankStatus(
        rank=rank.rank,
        pid=rank.pid,
        step=rank.step or 0,
        activity=rank.activity or "",
        age_s=rank.age_s or 0.0,
    )
