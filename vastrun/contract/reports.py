"""Reports: what the ranks of a program say of themselves, in files and in metrics. Standard library only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.outcome import EpochSeconds, ExitCode, Line, Lines, Step
from vastrun.contract.records import read_json, read_small

TASK_LOSS_PREFIX = "loss."
"""Prefix of the name under which the metrics hold the mean loss of a task."""
_LOSS = re.compile(r"train(?:ing)?_loss(?:_step)?|loss_train(?:ing)?|epoch_loss")
_VALIDATION_LOSS = re.compile(r"(?:val|valid|validation|eval)_loss|loss_(?:val|valid|validation|eval)")
HEARTBEAT_BYTES = 64
"""Bytes of a heartbeat, padded: a shorter one fully overwrites a longer one."""
_MAX_BEAT_BYTES = 1024
"""Maximum bytes to read of a heartbeat, since a user's program may write the file."""


@dataclass(frozen=True, kw_only=True)
class Beat:
    """A heartbeat that was read from its file."""

    step: int
    activity: str
    at: float
    """Epoch seconds."""
    pid: int


def read_beat(path: Path) -> Beat | None:
    """Read the last beat; None when there is none yet, or the file is malformed."""
    try:
        step, activity, at, pid = read_small(path, _MAX_BEAT_BYTES).decode("ascii").split()
        return Beat(step=int(step), activity=activity, at=float(at), pid=int(pid))
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, kw_only=True)
class RankRecord:
    """The record that a rank writes before it exits: `run/ranks/rank-N.json`."""

    reason: Line | None = None
    step: Step = 0
    exit_code: ExitCode | None = None
    asked: bool = False
    """True when the rank itself received SIGTERM."""
    exception: Line | None = None
    """Type and message of its error in one line."""
    traceback: Lines | None = None
    at: EpochSeconds = 0.0


def read_rank_record(box: Path, rank: int) -> RankRecord:
    """Read the record of a rank; an empty record if it is missing or malformed."""
    try:
        return read_json(RankRecord, rank_record_path(box, rank).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return RankRecord()


def rank_record_path(box: Path, rank: int) -> Path:
    """Return the path of the record of a rank."""
    return box / layout.RANKS / f"rank-{rank}.json"


def common_loss_name(name: str) -> str | None:
    """Return vastrun's name of a loss, where the name is a usual one of loggers; None for other names."""
    plain = re.sub(r"[^a-z]+", "_", name.lower())
    if _LOSS.fullmatch(plain):
        return "loss"
    return "validation_loss" if _VALIDATION_LOSS.fullmatch(plain) else None
