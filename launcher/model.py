"""The nouns: what was asked for, what is offered, what we pay for, what happened. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

LABEL_PREFIX = "vastrun-"


class Phase(StrEnum):
    """Where a run stands; `phases.NEXT` says what follows."""

    PLAN = "plan"
    RENT = "rent"
    BOOT = "boot"
    SHIP = "ship"
    TRAIN = "train"
    COLLECT = "collect"
    DESTROY = "destroy"
    ENDED = "ended"


class Cause(StrEnum):
    """Why a run left the straight road. The first one stays."""

    USER_ERROR = "user_error"
    SETUP = "setup"
    OUT_OF_MEMORY = "out_of_memory"
    SIGNAL = "signal"
    COMMUNICATION = "communication"
    DATA = "data"
    DISK = "disk"
    HOST = "host"
    STORAGE = "storage"
    """This computer could not write, before anything was rented."""
    HANG = "hang"
    STOPPED = "stopped"
    TIME_LIMIT = "time_limit"
    MONEY_LIMIT = "money_limit"
    PREEMPTED = "preempted"
    LOST = "lost"
    NO_OFFER = "no_offer"
    PROVIDER = "provider"
    UNPROVEN = "unproven"
    CONTRADICTION = "contradiction"
    INTERNAL = "internal"


class Verdict(StrEnum):
    """How a run ended; follows from its cause by `phases.VERDICT_OF`."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    HUNG = "HUNG"
    STOPPED = "STOPPED"
    LIMIT = "LIMIT"
    PREEMPTED = "PREEMPTED"
    LOST = "LOST"
    NO_OFFER = "NO_OFFER"
    UNKNOWN = "UNKNOWN"


class Wish(StrEnum):
    """What the user asks of a running launcher: by Ctrl-C here, or by `vastrun stop` elsewhere."""

    NONE = "none"
    DETACH = "detach"
    STOP = "stop"
    DESTROY = "destroy"

    @property
    def strength(self) -> int:
        """Of several wishes the strongest holds."""
        return list(Wish).index(self)


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A machine somebody would rent to us, at a price."""

    id: str
    host: str
    """The physical machine (Vast's machine_id): what we avoid after it failed us."""
    gpu_name: str | None
    gpus: int
    gpu_memory_gb: float
    disk_gb: float
    usd_per_hour: float
    description: str
    bid_usd_per_hour: float | None = None
    """What to bid for the GPUs; None: a machine on demand, at its price."""
    image: str | None = None
    """What fits the machine when the job names no image."""
    cuda: float = 0.0
    """The newest CUDA that its driver supports; 0: not said."""


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A machine we pay for, from rent to confirmed absence."""

    id: str
    label: str
    """`LABEL_PREFIX` + the run's id: how a launcher that was killed finds its machine again."""
    state: str
    """`running`, `loading`, or the provider's own word for anything else."""
    usd_per_hour: float
    rented_at: float
    """Epoch seconds."""
    host: str = ""
    note: str = ""
    """What the provider says of it beyond `state`: how far its start is."""
    gpu_name: str = ""
    gpus: int = 0
    memory_gb: float = 0.0
    disk_gb: float = 0.0
    cuda: float = 0.0
    """Empty or 0 in these five: not said, or not yet known."""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """When the box gives itself back, whatever happens to us. All counted from the moment it is armed."""

    ship_s: float
    """Ends the box when nothing was shipped by then."""
    life_s: float
    """Ends the box in any case."""
    life_cause: Cause
    """TIME_LIMIT or MONEY_LIMIT: which of the two `life_s` comes from."""
    grace_s: float
    """This long before `life_s` the training is asked to save and stop."""
    collect_s: float
    """How long a finished box waits for its outputs to be collected."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """All that a provider needs to rent."""

    offer: Offer
    label: str
    image: str | None
    disk_gb: float
    onstart: str
    """Text of the script the box runs on every start: the lease."""
    env: Mapping[str, str]
    """Never holds a secret."""


@dataclass(frozen=True, kw_only=True)
class Completed:
    """A finished command on an instance."""

    exit_code: int
    stdout: str
    stderr: str


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """What is shipped to a box: one archive."""

    path: str
    size: int
    """Bytes."""
    sha256: str


@dataclass(frozen=True, kw_only=True)
class RankSighting:
    """One rank as last seen by the supervisor."""

    rank: int
    pid: int | None
    step: int
    phase: str
    age_s: float
    """Seconds since this rank last moved."""


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """What one look at a box saw."""

    at: float
    """Epoch seconds on the box."""
    box: str
    """`idle` (nothing started), `running`, `ended` (has an exit code) or `dead` (gone without one)."""
    exit_code: int | None = None
    lease: str = "none"
    """`armed`, `proving`, `ending`, `dead` or `none`."""
    lease_ends_at: float | None = None
    onstart_step: str = ""
    step: int = 0
    steps: int = 0
    loss: float | None = None
    log_bytes: int = 0
    free_mb: int | None = None
    ranks: tuple[RankSighting, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Proof:
    """One piece of evidence for a success. `holds` is None when the evidence is missing."""

    name: str
    holds: bool | None
    text: str


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What the evidence says: no cause means success."""

    cause: Cause | None
    detail: str
    proofs: tuple[Proof, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Run:
    """One attempt at a job: a row of the ledger."""

    id: str
    job: str
    """The job's name."""
    spec_json: str
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
    """When absence was confirmed."""
    ended_at: float | None = None
    cause: Cause | None = None
    detail: str = ""
    failed_in: Phase | None = None
    """The phase that the cause came from."""
    proofs: tuple[Proof, ...] = ()
    wish: Wish = Wish.NONE
    destroy_tries: int = 0
    step: int = 0
    steps: int = 0

    @property
    def label(self) -> str:
        """The label its instance carries."""
        return LABEL_PREFIX + self.id


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something worth telling: a line of the run's diary."""

    run_id: str
    at: float
    phase: Phase
    text: str
    usd: float = 0.0
    """Spent so far."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How an account stands with a provider that costs money."""

    credit_usd: float
    clock_ahead_s: float | None
    """This computer's clock against the provider's; None: it does not say."""
    needed: tuple[str, ...]
    """The permissions of a key that is just enough."""
    refused: tuple[str, ...]
    """Those of them that the key was seen to lack."""
    wider: bool | None
    """The key may do more than needed; None: cannot be told."""


@dataclass(frozen=True, kw_only=True)
class Driver:
    """Who drives a run, until when. Nobody else may change its row before that."""

    who: str
    until: float


@dataclass(frozen=True, kw_only=True)
class CheckpointCopy:
    """How far a checkpoint has come home while the training goes on."""

    name: str
    """`step-000500`."""
    size: int
    """Bytes of all its files."""
    held: int
    """Of these, so many are here."""
    damaged: bool = False
    """It is not what its manifest says, and is left on the box."""

    @property
    def is_whole(self) -> bool:
        """It is here, checked, and the one to continue from."""
        return self.held == self.size and not self.damaged


@dataclass(frozen=True, kw_only=True)
class Collected:
    """What was brought home from a box."""

    outcome_json: str | None
    """Text of `run/outcome.json`; None when the box wrote none."""
    steps_jsonl: str | None
    exit_code: int | None
    files: int
    bytes: int
    damaged: tuple[str, ...] = field(default=())
    """Files whose checksum did not hold, or which could not be read."""
