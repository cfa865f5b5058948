"""Abilities: what a provider can do besides the five verbs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from vastrun.launcher.core import (
    AccountStatus,
    Cause,
    Charge,
    Identity,
    Instance,
    ListedVolume,
    MachineEnd,
    RentalOrder,
    Run,
    RunNetwork,
    SearchFinding,
    VolumeOffer,
)
from vastrun.launcher.ports.remotes import Remote

if TYPE_CHECKING:
    from vastrun.launcher.core.job import JobSpec
    from vastrun.launcher.decisions.market_report import MarketReport


class DescribesItself(Protocol):
    """A provider that needs software on this computer, which a user installs and starts."""

    def describe(self) -> str:
        """Say in words what it is. Raises ProviderError, which says what to install or start."""
        ...


class ReportsIdentity(Protocol):
    """A provider to which this computer may be somebody else tomorrow: then it lists other machines."""

    def identity(self) -> Identity:
        """Return who we are to it, by one question. Raises AuthError, ProviderError."""
        ...


class HasAccount(ReportsIdentity, Protocol):
    """A provider whose machines are paid for by an account."""

    def account_status(self) -> AccountStatus:
        """Return how the account stands. Changes nothing. Raises AuthError, ProviderError."""
        ...


class ReportsTermination(Protocol):
    """A provider that takes machines back by itself, and says why."""

    def end_of(self, instance_id: str) -> MachineEnd | None:
        """Return why that machine ended; None: it has not, or it does not say.

        Raises UnreachableError while it is just ending: it will say. ProviderError.
        """
        ...


class KeepsKeys(Protocol):
    """A provider that has a key of its own for each run."""

    def forget(self, run_id: str) -> None:
        """Remove the key that opened the run's machine from this computer."""
        ...


class HasHostLog(Protocol):
    """A provider that shows what the host of a machine wrote about its start."""

    def host_log(self, instance_id: str, *, within_s: float) -> str:
        """Return the end of the host's log: text of a stranger.

        Raises UnreachableError where it is not there within that time, ProviderError.
        """
        ...

    def cause_in(self, host_log: str) -> Cause | None:
        """Return the cause of a failed start by such a text; None: it does not say."""
        ...


class HasBills(Protocol):
    """A provider that says afterwards what it charged."""

    def charged(self, since: float, until: float) -> Sequence[Charge]:
        """List what was charged on the days of that time, as far as it is settled.

        A machine may stand in several.

        Raises AuthError, ProviderError.
        """
        ...


class HasStartScript(Protocol):
    """A provider whose machines run a script at each start."""

    def start_script(self, order: RentalOrder) -> str:
        """Return that text as a person reads it. Holds no secret."""
        ...


class HasNetworks(Protocol):
    """A provider whose machines reach each other only on a network that it makes for their run.

    It makes it with the first machine of an order that names several nodes. A network is named by the label
    of node 0, so that whoever comes later finds it.
    """

    def rendezvous(self, label: str, remote: Remote) -> str:
        """Return HOST:PORT at which the machine behind `remote` is reached on the network of that label.

        Raises ProviderError, with the host as its cause, when it is not on it; UnreachableError.
        """
        ...

    def run_networks(self) -> Sequence[RunNetwork]:
        """List those that vastrun made. Raises AuthError, ProviderError when it cannot be told."""
        ...

    def remove_network(self, label: str) -> None:
        """Return once there is no network of that label.

        Raises AuthError, ProviderError when it may still be there.
        """
        ...


class HasVolumes(Protocol):
    """A provider with data volumes, which are created with a machine and outlive it."""

    def volumes(self) -> Sequence[ListedVolume]:
        """List every volume whose label is one of vastrun's.

        Raises AuthError, ProviderError when it cannot be told: a volume that is not seen may exist.
        """
        ...

    def volume_offer(self, host: str, gb: int) -> VolumeOffer | None:
        """Return the cheapest room for a volume of that size on that machine; None: it has none.

        Raises AuthError, ProviderError.
        """
        ...

    def delete_volume(self, volume_id: str) -> None:
        """Ask until the provider agreed to delete the volume and all data on it, or has none.

        Raises AuthError, ProviderError.
        """
        ...


class ListsByRun(Protocol):
    """A provider whose machines lie on several others, of which one may be out of reach."""

    def instances_for(self, run: Run) -> Sequence[Instance]:
        """List machines as `instances`: all among which the run's are, and others need not be asked.

        Raises ProviderError when it cannot be told.
        """
        ...


class HasMarketReport(Protocol):
    """A provider with a market worth explaining."""

    def market_report(self, spec: JobSpec) -> MarketReport:
        """Report what the job's limits leave of the market, and what each offer would cost. Costs nothing."""
        ...


class ChecksItsSearch(Protocol):
    """A provider whose market can be searched in several ways, which should agree."""

    def search_findings(self) -> Iterable[SearchFinding]:
        """Search in each way, and say what was found out. Costs nothing."""
        ...


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """What a provider can do besides the five verbs: who does it, or None where it cannot."""

    account: HasAccount | None = None
    bills: HasBills | None = None
    description: DescribesItself | None = None
    host_log: HasHostLog | None = None
    keys: KeepsKeys | None = None
    market: HasMarketReport | None = None
    rents_every_s: float = 0.0
    """It rents no more than one machine in so long."""
    by_run: ListsByRun | None = None
    identity: ReportsIdentity | None = None
    """Of one that has no account."""
    ends: ReportsTermination | None = None
    networks: HasNetworks | None = None
    """None: the machines of a run reach each other without."""
    volumes: HasVolumes | None = None
    """Its data volumes; None where it has none."""
    replaces_nodes: bool = False
    """It rents a machine for a node of a run whose other nodes train already."""
    start_script: HasStartScript | None = None
    searches: ChecksItsSearch | None = None
    why_one_node: str = ""
    """Why a run can have no more than one machine there, or only on few hosts, where that is so."""
