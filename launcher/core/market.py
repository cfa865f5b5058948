"""Market: offers, machines and the terms of a rental."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from vastrun.launcher.core.verdict import Cause


@dataclass(frozen=True, kw_only=True)
class ExtraRates:
    """Prices of a machine besides its GPUs."""

    storage_usd_per_hour: float = 0.0
    """USD per hour of storage, part of `usd_per_hour`; charged from rent to the end, even while the GPUs
    are not."""
    down_usd_per_gb: float = 0.0
    up_usd_per_gb: float = 0.0
    """USD per GB of traffic into the machine and out of it."""


Basis = Literal["measured", "scaled", "roofline", "guess"]
"""Source of a speed: measured on this kind of machine, scaled from another kind, estimated by the GPU's
peaks, or guessed."""


UNMEASURED: tuple[Basis, ...] = ("roofline", "guess")
"""Sources that are not good enough for a promise."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Expected time of a job on a machine, with its source."""

    ready_s: float
    """Seconds from rent until it trains."""
    train_s: float
    """Seconds from then to the last step, if it starts with the first one."""
    basis: Basis
    runs: int = 0
    """Number of measured runs; 0 for a guess."""
    source: str = ""
    """`scaled`: the kind of machine of these runs, like `RTX 4090 x1`. `measured`: the command that measured
    it; empty: runs did."""
    steps_per_s: float | None = None
    """Expected steps per second; None: unknown."""


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A machine on offer, with its price."""

    id: str
    host: str
    """The physical machine (Vast's machine_id), which is avoided after failures."""
    gpu_name: str | None
    gpus: int
    gpu_memory_gb: float
    disk_gb: float
    usd_per_hour: float
    """USD per hour of GPUs and storage."""
    description: str
    host_account: str = ""
    """Account of the machine's owner at the market (Vast's host_id); empty: unknown."""
    address: str = ""
    """Public address of the site at which the machine stands; empty: unknown."""
    expected_usd: float = 0.0
    """Expected USD for finishing the job on one such machine, without its limits. 0: unknown."""
    loading_usd: float = 0.0
    """Part of `expected_usd` that is spent before it trains, for disk and traffic."""
    data_s: float = 0.0
    """Expected seconds until it has the job's data; 0: the job has none, or unknown."""
    sent_s: float = 0.0
    """Seconds of these in which this computer sends data to all machines of the run."""
    bucket_s: float = 0.0
    """Seconds for the same if it came from a bucket instead."""
    extras: ExtraRates = ExtraRates()
    bid_usd_per_hour: float | None = None
    """Bid for the GPUs in USD per hour; None: a machine on demand, at its price."""
    place: str = ""
    """Folder of the machine's files on a cluster's disk, by the settings then; empty: it has none."""
    image: str | None = None
    """Image for the machine: the job's own, or a matching one of vastrun; None: it runs no images."""
    network: str = ""
    """Network that its host shares with others of the market; empty: none, or all hosts share one."""
    image_whole: bool = False
    """True if the image has all that the onboard trainer needs; otherwise the rest is installed at boot."""
    cuda: float = 0.0
    """Newest CUDA version that its driver supports; 0: unknown."""
    forecast: Forecast | None = None
    """Expected time of the job; None: the provider has no forecast."""
    bill_tail_s: float = 0.0
    """Max. seconds after its end for which its provider may still charge it."""


ENDED = "ended"
"""State of a machine that has ended while its outputs can still be downloaded: nothing is started there."""


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A rented machine, from rent to confirmed absence."""

    id: str
    label: str
    """Label from `label_of`, by which the next launcher finds the machine of one that was killed."""
    state: str
    """State: `running`, `loading`, ENDED, or the provider's own word for anything else."""
    usd_per_hour: float
    """USD per hour of GPUs and storage."""
    rented_at: float
    """Epoch seconds."""
    extras: ExtraRates = ExtraRates()
    queued: bool | None = None
    """True while it waits for its turn and costs nothing. None: its provider has no queue."""
    idle: bool = False
    """True while its GPUs are not charged: it loads, was stopped, or its host is offline."""
    up_s: float | None = None
    """Seconds that it has run, as the provider reports; None: unknown."""
    down_gb: float = 0.0
    up_gb: float = 0.0
    """Traffic so far, as the provider counts it."""
    down_mbps: float = 0.0
    up_mbps: float = 0.0
    """Speed of its line in Mbit/s, as the provider lists it; 0: unknown."""
    host: str = ""
    note: str = ""
    """The provider's note beyond `state`, like the progress of its start."""
    gpu_name: str = ""
    gpus: int = 0
    disk_gb: float = 0.0
    cuda: float = 0.0
    """Newest CUDA version of its driver. Empty or 0 in these four fields: unknown."""
    image: str = ""
    """Its image, with the digest where the provider knows it; empty: unknown."""
    rendezvous: str = ""
    """HOST:PORT at which the other nodes of its run reach it, where it is node 0; empty: none."""
    unreadable: tuple[str, ...] = ()
    """Names of invalid values from the provider; they count as missing."""
    asked_at: float | None = field(default=None, compare=False)
    """Time of the request to the provider: the state is not older. None: the time of the caller's request."""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """Times at which the box ends itself without a launcher, counted from when the lease is armed."""

    ship_s: float
    """Seconds after which the box ends if nothing was uploaded."""
    life_s: float
    """Seconds after which the box ends in any case."""
    life_cause: Cause
    """Source of `life_s`: TIME_LIMIT or MONEY_LIMIT."""
    grace_s: float
    """Seconds before `life_s` at which the training is asked to save and stop."""
    collect_s: float
    """Seconds that a finished box waits for the download of its outputs."""


@dataclass(frozen=True, kw_only=True)
class RentalOrder:
    """An order of a machine from a provider."""

    offer: Offer
    label: str
    image: str | None
    disk_gb: float
    memory_gb: float = 0.0
    """Memory in GB that the job requests; 0: no request."""
    onstart: str
    """Text of the script that the box runs at every start: the lease."""
    env: Mapping[str, str]
    """Environment variables; never contains a secret."""
    max_usd: float
    """Max. cost of the run there by the job's limits, in USD."""
    warn_of_credit: Callable[[str], object] | None = None
    """Receives a warning where the account has less credit than `max_usd`; None: such an order is refused."""
    nodes: tuple[str, ...] = ()
    """Labels of all machines of the run, by node; empty: it has one machine."""


@dataclass(frozen=True, kw_only=True)
class RunNetwork:
    """A network that was created for the machines of one run."""

    name: str
    label: str
    """Label of the run's node 0, which identifies the network."""


@dataclass(frozen=True, kw_only=True)
class ScheduledEnd:
    """A request to destroy a machine that the provider's own servers send at a set time."""

    id: str
    instance_id: str
    at: float
    """Epoch seconds; 0: unknown."""


@dataclass(frozen=True, kw_only=True)
class Charge:
    """A provider's charge for a machine, as far as it is settled."""

    instance_id: str
    """Id of the machine; empty: none, or unknown."""
    source: str = ""
    """Provider's name of what was charged, if it is not a machine: `volume-12`."""
    label: str
    """Label of the machine, then or now; empty: it had none."""
    usd: float
    is_readable: bool = True
    """False: its amount could not be read, so that the bill of its machine is incomplete."""
    storage_usd: float = 0.0
    traffic_usd: float = 0.0
    """Parts of `usd` for storage and for traffic."""
    until: float = 0.0
    """Epoch seconds of the end of the last day charged; 0: unknown."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The account of the key at a provider, and the difference of the clocks."""

    account: str
    clock_ahead_s: float | None
    """Seconds by which this computer's clock is ahead of the provider's; None: unknown."""


@dataclass(frozen=True, kw_only=True)
class MachineEnd:
    """Reason why a provider ended a machine, as it reports."""

    cause: Cause
    text: str
    node: int | None = None
    """Node of its run whose end ended it, where that may be another one; None: unknown."""


@dataclass(frozen=True, kw_only=True)
class SearchFinding:
    """Result of one check of a market's search."""

    name: str
    text: str
    is_expected: bool | None
    """True if the search finds what it should; None: there was no response."""


@dataclass(frozen=True, kw_only=True)
class AccountStatus:
    """Status of an account with a provider that costs money."""

    credit_usd: float
    clock_ahead_s: float | None
    """Seconds by which this computer's clock is ahead of the provider's; None: unknown."""
    needed: tuple[str, ...]
    """Permissions of a minimal key."""
    refused: tuple[str, ...]
    """Needed permissions that the key lacks."""
    purposes: Mapping[str, Sequence[str]]
    """Purposes of each permission."""
    wider: bool | None
    """True if the key has more permissions than needed; None: unknown."""
