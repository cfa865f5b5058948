"""A run: one attempt at a job, its diary, its driver and the evidence of its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from vastrun.launcher.core.hidden import HIDDEN
from vastrun.launcher.core.labels import label_of
from vastrun.launcher.core.market import ExtraRates, Offer
from vastrun.launcher.core.phases import Phase
from vastrun.launcher.core.verdict import (
    EXIT_CODE_OF,
    EXIT_INTERRUPTED,
    EXIT_TEARDOWN_NOT_CONFIRMED,
    VERDICT_OF,
    Cause,
    Proof,
    Verdict,
)


@dataclass(frozen=True, kw_only=True)
class Meter:
    """What is known of a machine's bill besides its price. What is not known to be free is charged."""

    extras: ExtraRates = field(default_factory=ExtraRates)
    began_at: float | None = None
    """When it began to run; None: it was not seen to run."""
    armed_at: float | None = None
    """Time at which its lease was first seen to be armed; None: it was not seen."""
    idle_s: float = 0.0
    """So long its GPUs were not charged, as far as it was seen."""
    idle_at: float | None = None
    """When that was last seen; None: it ran when it was last seen."""
    down_gb: float = 0.0
    up_gb: float = 0.0
    """Traffic, as the provider last counted it."""
    former_gpu_usd: float = 0.0
    former_storage_usd: float = 0.0
    """Charged at prices that the machine had before."""
    former_gpu_s: float = 0.0
    former_rented_s: float = 0.0
    """The seconds that these are for."""
    given_back_at: float | None = None
    """When the provider last agreed to end it; whether it did is for a later look to say."""
    absent_at: float | None = None
    """Since when the provider had it no more."""


@dataclass(frozen=True, kw_only=True)
class Rental:
    """A further machine that a run's label was on: made late, or twice. It is ended, and was charged."""

    instance_id: str
    usd_per_hour: float
    rented_at: float
    released_at: float | None = None
    """When the provider last agreed to end it; None: it is there."""
    meter: Meter = Meter()


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a run cost, by what was charged."""

    gpu_usd: float = 0.0
    storage_usd: float = 0.0
    traffic_usd: float = 0.0

    @property
    def usd(self) -> float:
        """All of it."""
        return self.gpu_usd + self.storage_usd + self.traffic_usd


@dataclass(frozen=True, kw_only=True)
class MeasuredRun:
    """What one run has shown of its machine: how fast it trained, how long the machine took to start."""

    provider: str
    host: str
    gpu_name: str
    """Empty: it had none."""
    gpus: int
    gpu_memory_gb: float
    spec_json: str
    """The job, as in its Run."""
    steps_per_s: float | None = None
    boot_s: float | None = None
    bid_hours: float = 0.0
    """Hours for which its machine was rented by a bid; 0: on demand."""
    preempted: bool = False
    """Somebody else was given its machine."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One try at a job: a row of the ledger."""

    id: str
    job: str
    """The job's name."""
    spec_json: str = field(metadata=HIDDEN)
    """The whole JobSpec as validated, so that a resume needs no file."""
    provider: str
    phase: Phase
    out_dir: str
    created_at: float
    phase_at: float
    """When the present phase began."""
    parent: str | None = None
    """The run this one retries or continues."""
    offer: Offer | None = None
    instance_id: str | None = None
    host: str = ""
    usd_per_hour: float = 0.0
    rented_at: float | None = None
    """Epoch seconds; set before the provider is asked, so that cost is never too low."""
    released_at: float | None = None
    """When its machine stopped costing; set once its absence is confirmed."""
    meter: Meter = Meter()
    rentals: tuple[Rental, ...] = ()
    """Machines besides its own: each of them is part of what it cost."""
    charged: Cost | None = None
    """What its provider charged for all of them, once that is settled; None: its cost is what was counted."""
    ledger: str = ""
    """The id of the ledger that it began in; empty where only its own launchers see its machines."""
    account: str = ""
    """Whose key it was rented with; empty: the provider has no accounts, or was not asked."""
    clock_ahead_s: float | None = None
    """How far this computer's clock was ahead of the provider's when these times were written."""
    ended_at: float | None = None
    cause: Cause | None = None
    detail: str = ""
    failed_in: Phase | None = None
    """The phase that the cause came from."""
    proofs: tuple[Proof, ...] = ()
    destroy_tries: int = 0
    step: int = 0
    steps: int = 0
    image: str = ""
    """What its machine runs, by its digest where that is known."""
    boot_s: float | None = None
    """From rent to the armed lease; None: it was not seen."""
    steps_per_s: float | None = None
    """Of its training, as far as it was seen."""
    batch: str = ""
    """The batch that it belongs to; empty: none."""
    point: str = ""
    """The id of the batch's point that it runs."""
    reserved_usd: float = 0.0
    """Held of its budgets while it is open: the most that it may cost."""
    started_by: str = ""
    """The login name of who launched it; empty: nobody knows."""
    computer: str = ""
    """The computer whose launchers have its outputs, and its machine where that is no rented one; see
    `Driver.who`. Empty: the one computer of the ledger."""
    home: str = ""
    """The computer on which its job was read, which has its code and its secrets; as `computer`."""
    leader: str = ""
    """Of a further node of a run that has several: the id of that run, which is node 0 and has the verdict of
    them all; empty: it is a run of its own."""
    node: int = 0
    failed_node: int | None = None
    """The node that the cause came from, where the run has several; None: it came from no node."""

    @property
    def is_to_blame(self) -> bool:
        """Whether the cause, if there is one, came from this very node."""
        return self.failed_node in (None, self.node)

    @property
    def label(self) -> str:
        """The label its instance carries."""
        return label_of(self.id, self.ledger)

    @property
    def verdict(self) -> Verdict | None:
        """How it ended; None while it is open."""
        return VERDICT_OF[self.cause] if self.phase is Phase.ENDED else None

    def exit_code(self, *, interrupted: bool = False) -> int:
        """Return the status of a command that drove it as far as it went; `interrupted` by a signal."""
        if self.phase is Phase.DESTROY:
            return EXIT_TEARDOWN_NOT_CONFIRMED
        if self.verdict is None:
            return 0
        if interrupted and self.cause is Cause.STOPPED and self.rented_at is None:
            return EXIT_INTERRUPTED
        return EXIT_CODE_OF[self.verdict]


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something worth telling: a line of the run's diary."""

    run_id: str
    at: float
    phase: Phase
    text: str
    usd: float = 0.0
    """Spent so far."""
    told: str = ""
    """The notification that the user was sent then, PRUNING or LEFT_TO_LEASE; empty in any other line."""


PRUNING = "pruning"
"""Marks the event whose text says why a batch prunes the run. A box words some texts, and never this mark."""


@dataclass(frozen=True, kw_only=True)
class Driver:
    """Who drives a run, until when. Nobody else may change its row before that."""

    who: str
    until: float


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Checkpoints of the runs before this one. The newest whole one of the nearest run with any counts."""

    folder: Path | None = None
    """Those that came home."""
    pushed: tuple[str, ...] = ()
    """URLs that this run and those since pushed to by themselves, the nearest run's first."""
    continues: tuple[str, ...] = ()
    """The ids of all the runs before this one, the nearest first."""


NOTHING = Origin()
"""Of a run that begins with its first step."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a training stands. What is not known is None, and is not shown."""

    activity: str = ""
    """What is being done besides training: `loading data`."""
    step: int | None = None
    steps: int | None = None
    """The last one."""
    loss: float | None = None
    left_s: float | None = None
    """Until the last step, at the pace of the last minutes."""


class UserRequest(StrEnum):
    """What is asked of a running launcher: by Ctrl-C here, by `vastrun stop` elsewhere, or by its batch."""

    NONE = "none"
    DETACH_ONCE_TRAINING = "detach_once_training"
    """Stay until the training has begun."""
    DETACH = "detach"
    PRUNE = "prune"
    """By the early stop of its batch; else as STOP."""
    STOP = "stop"
    DESTROY = "destroy"

    @property
    def strength(self) -> int:
        """Of several requests the strongest holds."""
        return _STRENGTH[self]

    def or_stronger(self, other: UserRequest) -> UserRequest:
        """Return this request, or the other one where that is stronger."""
        return self if self.strength >= other.strength else other

    @property
    def cause(self) -> Cause | None:
        """Return what a run ends with that is ended for this; None: it is not ended for it."""
        return CAUSE_OF_REQUEST[self]


_STRENGTH: Mapping[UserRequest, int] = {request: number for number, request in enumerate(UserRequest)}
"""A running launcher asks before each request to its box, and each second."""

CAUSE_OF_REQUEST: Mapping[UserRequest, Cause | None] = {
    UserRequest.NONE: None,
    UserRequest.DETACH_ONCE_TRAINING: None,
    UserRequest.DETACH: None,
    UserRequest.PRUNE: Cause.PRUNED,
    UserRequest.STOP: Cause.STOPPED,
    UserRequest.DESTROY: Cause.STOPPED,
}
