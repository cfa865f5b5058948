"""What is offered, what is rented of it, and on which terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from vastrun.launcher.core.verdict import Cause
from vastrun.launcher.core.volumes import VolumeOrder


@dataclass(frozen=True, kw_only=True)
class ExtraRates:
    """What a machine costs besides its GPUs."""

    storage_usd_per_hour: float = 0.0
    """Part of `usd_per_hour`; charged from rent to the end, also while the GPUs are not."""
    down_usd_per_gb: float = 0.0
    up_usd_per_gb: float = 0.0
    """Traffic into the machine and out of it."""


Basis = Literal["measured", "scaled", "roofline", "guess"]
"""How a speed is known: of this kind of machine, of another kind, by what a step takes and what the GPU could
do at best, or not at all."""


UNMEASURED: tuple[Basis, ...] = ("roofline", "guess")
"""No promise can rest on these."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """How long a job is expected to take on a machine, and how that is known."""

    ready_s: float
    """From rent until it trains."""
    train_s: float
    """From then on to the last step, when the first step is its first."""
    basis: Basis
    runs: int = 0
    """How many runs were measured; 0 for a guess."""
    source: str = ""
    """`scaled`: the kind of machine that they ran on, such as `RTX 4090 x1`."""
    steps_per_s: float | None = None
    """None: nobody knows."""


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
    """GPUs and storage."""
    description: str
    expected_usd: float = 0.0
    """What finishing the job should cost on each such machine, whatever its limits are. 0: nobody knows."""
    loading_usd: float = 0.0
    """The part of that which is spent before it trains, for disk and traffic."""
    extras: ExtraRates = ExtraRates()
    bid_usd_per_hour: float | None = None
    """What to bid for the GPUs; None: a machine on demand, at its price."""
    image: str | None = None
    """What would run there: the job's own, or ours that fits; None: it runs no images."""
    network: str = ""
    """The network that its host shares with others of the market; empty: none, or all hosts share one."""
    image_whole: bool = False
    """The image has all that the onboard trainer needs; what another one lacks is installed at boot."""
    cuda: float = 0.0
    """The newest CUDA that its driver supports; 0: not said."""
    forecast: Forecast | None = None
    """None: its provider expects nothing."""


ENDED = "ended"
"""The state of a machine that is over, while what it left can be collected: nothing is started there."""


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A machine we pay for, from rent to confirmed absence."""

    id: str
    label: str
    """As `label_of`: how a launcher that was killed finds its machine again."""
    state: str
    """`running`, `loading`, ENDED, or the provider's own word for anything else."""
    usd_per_hour: float
    """GPUs and storage."""
    rented_at: float
    """Epoch seconds."""
    extras: ExtraRates = ExtraRates()
    queued: bool | None = None
    """It waits for its turn: nothing of it counts yet. None: with its provider no machine waits."""
    idle: bool = False
    """Its GPUs are not charged: it loads, was stopped, or its host is away."""
    up_s: float | None = None
    """How long it runs, as the provider says; None: it does not say."""
    down_gb: float = 0.0
    up_gb: float = 0.0
    """Traffic so far, as the provider counts it."""
    host: str = ""
    note: str = ""
    """What the provider says of it beyond `state`: how far its start is."""
    gpu_name: str = ""
    gpus: int = 0
    memory_gb: float = 0.0
    disk_gb: float = 0.0
    cuda: float = 0.0
    """Empty or 0 in these five: not said, or not yet known."""
    image: str = ""
    """What it runs, by its digest where the provider knows that; empty: it does not say."""
    rendezvous: str = ""
    """HOST:PORT at which the other nodes of its run reach it, where it is node 0; empty: they do not."""
    unreadable: tuple[str, ...] = ()
    """Names of values that the provider sent and that make no sense; they count as missing."""
    asked_at: float | None = field(default=None, compare=False)
    """When the provider was asked for this: it tells of no moment before. None: when the caller asked."""


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
class RentalOrder:
    """All that a provider needs to rent."""

    offer: Offer
    label: str
    image: str | None
    disk_gb: float
    memory_gb: float = 0.0
    """As much as the job asks for; 0: it does not."""
    onstart: str
    """Text of the script the box runs on every start: the lease."""
    env: Mapping[str, str]
    """Never holds a secret."""
    max_usd: float
    """What the job's limits let it cost there."""
    nodes: tuple[str, ...] = ()
    """The labels of all machines of the run, by node, of which this is one; empty: it has no other."""
    volume: VolumeOrder | None = None
    """Data volume to attach or create; None: the data are on the machine's own disk."""


@dataclass(frozen=True, kw_only=True)
class RunNetwork:
    """A network that was made for the machines of one run."""

    name: str
    label: str
    """That of the run's node 0: whose network it is."""


@dataclass(frozen=True, kw_only=True)
class Charge:
    """What a provider says that it charged for a machine, as far as that is settled."""

    instance_id: str
    """Empty: it is for no machine, or the provider does not say."""
    label: str
    """The machine's, as it was or as it is by now; empty: it had none."""
    usd: float
    storage_usd: float = 0.0
    traffic_usd: float = 0.0
    """The parts of it for storage and for traffic."""
    until: float = 0.0
    """Epoch seconds of the last thing charged; 0: not said."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Who we are to a provider, and what time it is there."""

    account: str
    clock_ahead_s: float | None
    """This computer's clock against the provider's; None: it does not say."""


@dataclass(frozen=True, kw_only=True)
class MachineEnd:
    """Why a provider ended a machine, as it says."""

    cause: Cause
    text: str
    node: int | None = None
    """The node of its run with which it ended, where that may be another one; None: it does not say."""


@dataclass(frozen=True, kw_only=True)
class SearchFinding:
    """Result of one check of a market's search."""

    name: str
    text: str
    is_expected: bool | None
    """The search finds what it should; None: it was not answered."""


@dataclass(frozen=True, kw_only=True)
class AccountStatus:
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
