"""Run: one attempt at a job, with its diary, its driver and the evidence of its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from vastrun.contract.program_kind import Proof
from vastrun.launcher.core.labels import label_of
from vastrun.launcher.core.market import ExtraRates, Offer
from vastrun.launcher.core.phases import Phase
from vastrun.launcher.core.verdict import (
    EXIT_CODE_OF,
    EXIT_INTERRUPTED,
    EXIT_TEARDOWN_NOT_CONFIRMED,
    VERDICT_OF,
    Cause,
    Verdict,
)

HIDDEN = {"hidden": True}


@dataclass(frozen=True, kw_only=True)
class Meter:
    """Data for a machine's bill besides its price, and when it last answered.

    Everything that is not known to be free is charged.
    """

    extras: ExtraRates = field(default_factory=ExtraRates)
    began_at: float | None = None
    """Time at which it started to run; None: it was not seen to run."""
    armed_at: float | None = None
    """Time at which its lease was first seen to be armed; None: it was not seen."""
    idle_s: float = 0.0
    """Seconds for which its GPUs were not charged, as far as it was seen."""
    idle_at: float | None = None
    """Time at which it was last seen idle; None: it ran when it was last seen."""
    down_gb: float = 0.0
    up_gb: float = 0.0
    """GB of traffic, as the provider last counted it."""
    former_gpu_usd: float = 0.0
    former_storage_usd: float = 0.0
    """USD charged at former prices of the machine."""
    former_gpu_s: float = 0.0
    former_rented_s: float = 0.0
    """Seconds that were charged at former prices."""
    given_back_at: float | None = None
    """Time at which the provider last accepted its end, which a later look confirms."""
    absent_at: float | None = None
    """Time from which the provider did not list it any more."""
    answered_at: float | None = None
    """Time at which it last answered its launcher, at most ANSWER_SAVE_S late; None: it did not yet."""
    silent: bool = False
    """True once it did not answer, until it answers again."""
    is_forgiven: bool = False
    """True once the user allowed its host again: its failure speaks against no machine any more."""


class MachineState(StrEnum):
    """State of a run's machine that does not answer."""

    NOT_ANSWERING = "not_answering"
    """It does not answer, and its provider says that it runs, or cannot be asked."""
    NOT_LISTED = "not_listed"
    """Its provider's list lacks it, or says that it has stopped. It may come back."""
    GONE = "gone"
    """Its provider confirmed that it does not exist."""


@dataclass(frozen=True, kw_only=True)
class Rental:
    """A further machine with a run's label, made late or twice. It was destroyed and charged."""

    instance_id: str
    usd_per_hour: float
    rented_at: float
    released_at: float | None = None
    """Time at which the provider last accepted its end; None: it exists."""
    meter: Meter = Meter()


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Cost of a run, by type."""

    gpu_usd: float = 0.0
    storage_usd: float = 0.0
    traffic_usd: float = 0.0

    @property
    def usd(self) -> float:
        """Total in USD."""
        return self.gpu_usd + self.storage_usd + self.traffic_usd

    def __add__(self, other: Cost) -> Cost:
        """Return the cost of both."""
        return Cost(
            gpu_usd=self.gpu_usd + other.gpu_usd,
            storage_usd=self.storage_usd + other.storage_usd,
            traffic_usd=self.traffic_usd + other.traffic_usd,
        )


@dataclass(frozen=True, kw_only=True)
class Settled(Cost):
    """Cost of a run by its settled bill."""

    tail_s: float | None = None
    """Seconds of its machine that were charged beyond those counted; None: unknown, or several machines."""


@dataclass(frozen=True, kw_only=True)
class MeasuredRun:
    """Measurements of one run: speed of its training, boot time of its machine, tail of its bill."""

    provider: str
    host: str
    gpu_name: str
    """Name of its GPUs; empty: it had none."""
    gpus: int
    gpu_memory_gb: float
    spec_json: str
    """The job as JSON, as in its Run."""
    steps_per_s: float | None = None
    boot_s: float | None = None
    bid_hours: float = 0.0
    """Hours for which its machine was rented by a bid; 0: on demand."""
    preempted: bool = False
    """True if its machine was preempted."""
    account: str = ""
    """Account of the key with which it was rented; empty: none, or unknown."""
    tail_s: float | None = None
    """Seconds that were charged beyond those counted, by its settled bill; None: unknown."""


@dataclass(frozen=True, kw_only=True, slots=True)  # a batch of 10,000 points has all in memory
class Run:
    """One attempt at a job: a row of the ledger."""

    id: str
    job: str
    """The job's name."""
    spec_json: str = field(metadata=HIDDEN)
    """The validated JobSpec as JSON, so that a resume needs no file."""
    provider: str
    phase: Phase
    out_dir: str
    created_at: float
    phase_at: float
    """Start of the current phase."""
    parent: str | None = None
    """The run this one retries or continues."""
    offer: Offer | None = None
    instance_id: str | None = None
    host: str = ""
    usd_per_hour: float = 0.0
    rented_at: float | None = None
    """Epoch seconds of the order; set before the provider is asked, so that the cost is never too low."""
    released_at: float | None = None
    """Time at which its machine stopped costing money; set once its absence is confirmed."""
    meter: Meter = Meter()
    rentals: tuple[Rental, ...] = ()
    """Further machines, which are part of its cost."""
    charged: Settled | None = None
    """Settled charge of its provider for all machines; None: its cost is the counted one."""
    ledger: str = ""
    """Id of the ledger in which it was created; empty where only its own launchers see its machines."""
    account: str = ""
    """Account of the key with which it was rented; empty: none, or unknown."""
    clock_ahead_s: float | None = None
    """Seconds by which this computer's clock was ahead of the provider's when these times were written."""
    ended_at: float | None = None
    cause: Cause | None = None
    detail: str = ""
    failed_in: Phase | None = None
    """Phase in which the cause occurred."""
    proofs: tuple[Proof, ...] = ()
    destroy_tries: int = 0
    step: int = 0
    steps: int = 0
    image: str = ""
    """Image of its machine, with the digest where known."""
    boot_s: float | None = None
    """Seconds from rent to the armed lease; None: not seen."""
    steps_per_s: float | None = None
    """Steps per second of its training, as far as it was seen; steps of mean work where stages differ."""
    batch: str = ""
    """Name of its batch; empty: none."""
    point: str = ""
    """Id of the batch's point that it runs."""
    reserved_usd: float = 0.0
    """USD reserved in its budgets while it is open: its max. cost."""
    started_by: str = ""
    """Login name of the user who launched it; empty: unknown."""
    computer: str = ""
    """Computer that has its outputs, and its machine if that is not rented; see `Driver.who`. Empty: the
    ledger's only computer."""
    home: str = ""
    """Computer on which its job was read, which has its code and its secrets; as `computer`."""
    leader: str = ""
    """For a further node of a run: the id of that run, which is node 0 and has the verdict of all nodes;
    empty: the row is the run itself."""
    node: int = 0
    failed_node: int | None = None
    """Node in which the cause occurred, where the run has several; None: no node."""

    @property
    def label(self) -> str:
        """Label of its machine."""
        return label_of(self.id, self.ledger)

    @property
    def verdict(self) -> Verdict | None:
        """Verdict; None while it is open."""
        return VERDICT_OF[self.cause] if self.phase is Phase.ENDED else None

    def exit_code(self, *, interrupted: bool = False) -> int:
        """Return the exit code of a command that drove it; `interrupted`: by a signal."""
        if self.phase is Phase.DESTROY:
            return EXIT_TEARDOWN_NOT_CONFIRMED
        if self.verdict is None:
            return 0
        if interrupted and self.cause is Cause.STOPPED and self.rented_at is None:
            return EXIT_INTERRUPTED
        return EXIT_CODE_OF[self.verdict]


def attempts_until(run: Run, get: Callable[[str], Run | None]) -> list[Run]:
    """List the run and those of its job that it tries again or continues, newest first."""
    attempts = {run.id: run}
    while run.parent is not None and run.parent not in attempts:  # a team's rows may be anybody's
        former = get(run.parent)
        if former is None or former.job != run.job:
            break
        run = attempts[former.id] = former
    return list(attempts.values())


@dataclass(frozen=True, kw_only=True)
class Event:
    """An event in the run's diary."""

    run_id: str
    at: float
    phase: Phase
    text: str
    usd: float = 0.0
    """Spent so far."""
    told: str = ""
    """Kind of the notification that was sent, PRUNING or LEFT_TO_LEASE; empty for other events."""


PRUNING = "pruning"
"""Mark of the event with the reason for a pruning. A box writes some texts, but never this mark."""


@dataclass(frozen=True, kw_only=True)
class Driver:
    """The launcher that drives a run. No other one may change the run's row before `until`."""

    who: str
    until: float


@dataclass(frozen=True, kw_only=True)
class CodeFile:
    """A file of the code as it was shipped."""

    mode: str
    """Mode in git: `100644`, `100755`, or `120000` for a link."""
    size: int = 0
    sha256: str = ""
    target: str | None = None
    """Target of a link; None for a file."""


@dataclass(frozen=True, kw_only=True)
class CodeOrigin:
    """Origin of the code; outside of git nothing is known."""

    commit: str | None = None
    branch: str | None = None
    remote: str | None = None
    """URL of `origin`, without credentials."""
    dirty: bool = False
    """Something was not committed."""


@dataclass(frozen=True, kw_only=True)
class CodeRecord:
    """Code as it was submitted."""

    digest: str
    """Digest of the names, modes and contents of all files."""
    origin: CodeOrigin = field(default_factory=CodeOrigin)
    files: Mapping[str, CodeFile] = field(default_factory=dict)
    """Files by name."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Checkpoints of the runs before this one. The newest complete one of the nearest run counts."""

    folder: Path | None = None
    """Folder of downloaded checkpoints."""
    pushed: tuple[str, ...] = ()
    """URLs to which this run and those since pushed checkpoints, the nearest run's first."""
    continues: tuple[str, ...] = ()
    """Ids of all earlier runs, the nearest first."""


NOTHING = Origin()
"""Origin of a run that starts with its first step."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Progress of a training. Unknown values are None and are not shown."""

    activity: str = ""
    """Activity besides training, like `loading data`."""
    step: int | None = None
    steps: int | None = None
    """Last step."""
    stage: str = ""
    """The stage of several, as `refine, stage 2 of 3`; empty: there is only one."""
    loss: float | None = None
    left_s: float | None = None
    """Seconds until the last step of all stages, at the pace of the last minutes."""


class UserRequest(StrEnum):
    """Request to a running launcher: by Ctrl-C, by `vastrun stop` elsewhere, or by its batch."""

    NONE = "none"
    DETACH_ONCE_TRAINING = "detach_once_training"
    """Detach once the training has started."""
    DETACH = "detach"
    PRUNE = "prune"
    """Stop by the early stop of the batch."""
    STOP = "stop"
    DESTROY = "destroy"

    @property
    def strength(self) -> int:
        """Rank of the request: the strongest of several counts."""
        return _STRENGTH[self]

    def or_stronger(self, other: UserRequest) -> UserRequest:
        """Return this request, or the other one where that is stronger."""
        return self if self.strength >= other.strength else other

    @property
    def cause(self) -> Cause | None:
        """Return the cause of a run that ends by this request; None: the request ends no run."""
        return CAUSE_OF_REQUEST[self]


_STRENGTH: Mapping[UserRequest, int] = {request: number for number, request in enumerate(UserRequest)}
"""Strength by request, precomputed: a running launcher needs it each second."""

CAUSE_OF_REQUEST: Mapping[UserRequest, Cause | None] = {
    UserRequest.NONE: None,
    UserRequest.DETACH_ONCE_TRAINING: None,
    UserRequest.DETACH: None,
    UserRequest.PRUNE: Cause.PRUNED,
    UserRequest.STOP: Cause.STOPPED,
    UserRequest.DESTROY: Cause.STOPPED,
}
