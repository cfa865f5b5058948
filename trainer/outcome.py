"""Outcome: the evidence a box writes about one training. Read by the launcher, which judges it.

Standard library only. `Outcome.to_json` and `Outcome.from_json` are the file format of `run/outcome.json`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

from trainer.records import read_as

Reason = Literal[
    "finished", "error", "oom", "signal", "communication", "data", "disk", "device", "hang", "stopped"
]


@dataclass(frozen=True, kw_only=True)
class RankEnd:
    """How one rank ended."""

    rank: int
    exit_code: int | None
    """None when it was never seen to end; negative: minus the signal's number."""
    signal: str | None = None
    """Name of the signal that ended it, such as SIGSEGV."""
    ended_by_us: bool = False
    """True when the supervisor or the launch agent ended it because of another rank."""
    reason: str | None = None
    """What the rank itself wrote before it left: finished, oom, error, stopped...; None: it wrote nothing."""
    exception: str | None = None
    """Type and message, one line."""
    traceback: str | None = None
    step: int = 0
    phase: str = ""


@dataclass(frozen=True, kw_only=True)
class Hang:
    """A rank that stopped moving while others waited for it."""

    rank: int
    step: int
    phase: str
    stalled_s: float
    frame: str
    """The innermost frame of its main thread: `file:line function`."""
    stacks: tuple[str, ...]
    """Files with the stacks of all ranks, relative to the box's folder."""
    waits: tuple[str, ...] = ()
    """Who waits for others, and in what: `rank 0 in backward`."""
    in_collective: bool = False
    """It stood in a collective itself: the rank it waited for is not known."""


@dataclass(frozen=True, kw_only=True)
class FileSum:
    """A file by its checksum."""

    path: str
    """Relative to the box's folder."""
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class CheckpointEnd:
    """The newest complete checkpoint."""

    step: int
    path: str
    files: tuple[FileSum, ...]
    intact: bool
    """The supervisor read every file again and its checksum held."""


@dataclass(frozen=True, kw_only=True)
class WandbRun:
    """The W&B run of this training."""

    id: str
    mode: Literal["online", "offline", "off"]
    state: Literal["running", "finished", "failed", "crashed"]
    url: str | None = None


@dataclass(frozen=True, kw_only=True)
class Check:
    """One condition of a user's `success:` section."""

    name: str
    holds: bool
    text: str


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One group of ranks, from its start to its end. The supervisor may start another when it failed."""

    reason: Reason
    detail: str
    """One line: what happened, and to which rank."""
    world_size: int
    micro_batch: int | None = None
    """Windows that a rank computed at once; None: it never said."""
    steps_done: int = 0
    checkpoint: int | None = None
    """Step of the newest checkpoint when it ended."""
    first_failure: RankEnd | None = None
    started_at: float
    ended_at: float


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """All that the supervisor knows at the end. What is said of ranks is said of the last attempt."""

    schema_version: int = 1
    kind: Literal["train", "command"]
    reason: Reason
    detail: str
    """One line: what happened, and to which rank."""
    started_at: float
    ended_at: float
    world_size: int
    ranks: tuple[RankEnd, ...]
    first_failure: RankEnd | None = None
    hang: Hang | None = None
    stop_cause: str | None = None
    """What the stop file said: stopped, time_limit, money_limit."""
    final_record: bool = False
    """The trainer wrote its final record."""
    steps_done: int = 0
    steps_planned: int | None = None
    last_loss: float | None = None
    loss_finite: bool | None = None
    checkpoint: CheckpointEnd | None = None
    scores: dict[str, float] | None = None
    """Numbers of the final record, such as rollout_nrmse and persistence_nrmse."""
    wandb: WandbRun | None = None
    checks: tuple[Check, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    """Every start of the ranks on this box, the last included."""

    def to_json(self) -> str:
        """The file's text. A loss that is not finite becomes null; `loss_finite` says so."""
        return json.dumps(asdict(self), indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        """The outcome in a file's text. Raises ValueError when the text is not one."""
        try:
            outcome = read_as(cls, json.loads(text))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not an outcome: {error}") from error
        assert isinstance(outcome, cls)
        return outcome
