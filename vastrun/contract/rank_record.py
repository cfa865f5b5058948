"""Rank record: the file in which a rank leaves why it ended. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

from vastrun.contract import layout
from vastrun.contract.outcome import EpochSeconds, ExitCode, Line, Lines, Step
from vastrun.contract.records import read_json


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
        return cast(
            RankRecord, read_json(RankRecord, rank_record_path(box, rank).read_text(encoding="utf-8"))
        )
    except (OSError, ValueError):
        return RankRecord()


def rank_record_path(box: Path, rank: int) -> Path:
    """Return the path of the record of a rank."""
    return box / layout.RANKS / f"rank-{rank}.json"
