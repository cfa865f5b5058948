"""Abilities: optional interfaces of a provider."""

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
    """A provider that needs software on this computer, which the user installs and starts."""

    def describe(self) -> str:
        """Describe the software. Raises ProviderError with what to install or start."""
        ...


class ReportsIdentity(Protocol):
    """A provider whose key may belong to another account later, and then lists other machines."""

    def identity(self) -> Identity:
        """Return the account of the key, by one request. Raises AuthError, ProviderError."""
        ...


class HasAccount(ReportsIdentity, Protocol):
    """A provider whose machines are paid for by an account."""

    def account_status(self) -> AccountStatus:
        """Return the status of the account. Read-only. Raises AuthError, ProviderError."""
        ...


class ReportsTermination(Protocol):
    """A provider that ends machines on its own, and reports why."""

    def end_of(self, instance_id: str) -> MachineEnd | None:
        """Return why that machine ended; None: it has not, or the reason is unknown.

        Raises UnreachableError while it is just being ended, ProviderError.
        """
        ...


class KeepsKeys(Protocol):
    """A provider with a separate key for each run."""

    def forget(self, run_id: str) -> None:
        """Remove the key that opened the run's machine from this computer."""
        ...


class HasHostLog(Protocol):
    """A provider that shows what the host of a machine wrote about its start."""

    def host_log(self, instance_id: str, *, within_s: float) -> str:
        """Return the end of the host's log, which is untrusted text.

        Raises UnreachableError where it is not available within that time, ProviderError.
        """
        ...

    def cause_in(self, host_log: str) -> Cause | None:
        """Return the cause of a failed start by the host's log; None: unknown."""
        ...


class HasBills(Protocol):
    """A provider that reports its charges afterwards."""

    def charged(self, since: float, until: float) -> Sequence[Charge]:
        """List the charges on the days of that time, as far as they are settled.

        A machine may have several.

        Raises AuthError, ProviderError.
        """
        ...


class HasStartScript(Protocol):
    """A provider whose machines run a script at each start."""

    def start_script(self, order: RentalOrder) -> str:
        """Return that script in readable form. Contains no secret."""
        ...


class HasNetworks(Protocol):
    """A provider whose machines reach each other only on a network that it creates for their run.

    It creates it with the first machine of an order with several nodes. A network is identified by the
    label of node 0, so that the next launcher finds it.
    """

    def rendezvous(self, label: str, remote: Remote) -> str:
        """Return HOST:PORT at which the machine behind `remote` is reached on the network of that label.

        Raises ProviderError, with the cause HOST, when it is not on that network; UnreachableError.
        """
        ...

    def run_networks(self) -> Sequence[RunNetwork]:
        """List the networks that vastrun created. Raises AuthError, ProviderError when the list is
        unknown."""
        ...

    def remove_network(self, label: str) -> None:
        """Remove the network of that label; return once it does not exist.

        Raises AuthError, ProviderError when it may still exist.
        """
        ...


class HasVolumes(Protocol):
    """A provider with data volumes, which are created with a machine and outlive it."""

    def volumes(self) -> Sequence[ListedVolume]:
        """List every volume whose label is one of vastrun's.

        Raises AuthError, ProviderError when the list is unknown: a volume that is not seen may exist.
        """
        ...

    def volume_offer(self, host: str, gb: int) -> VolumeOffer | None:
        """Return the cheapest room for a volume of that size on that machine; None: it has none.

        Raises AuthError, ProviderError.
        """
        ...

    def delete_volume(self, volume_id: str) -> None:
        """Request until the provider accepted the deletion of the volume and its data, or has no such
        volume.

        Raises AuthError, ProviderError.
        """
        ...


class ListsByRun(Protocol):
    """A provider whose machines are on several others, of which one may be unreachable."""

    def instances_for(self, run: Run) -> Sequence[Instance]:
        """List machines as `instances`, at least those of the run, without asking the other providers.

        Raises ProviderError when the list is unknown.
        """
        ...


class HasMarketReport(Protocol):
    """A provider with a market that can be explained."""

    def market_report(self, spec: JobSpec) -> MarketReport:
        """Report the offers within the job's limits, and the cost of each. Costs nothing."""
        ...


class ChecksItsSearch(Protocol):
    """A provider whose market can be searched in several ways, which should agree."""

    def search_findings(self) -> Iterable[SearchFinding]:
        """Search in each way, and report the findings. Costs nothing."""
        ...


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """Optional abilities of a provider: the object that implements each, or None."""

    account: HasAccount | None = None
    bills: HasBills | None = None
    description: DescribesItself | None = None
    host_log: HasHostLog | None = None
    keys: KeepsKeys | None = None
    market: HasMarketReport | None = None
    rents_every_s: float = 0.0
    """Min. seconds between two orders."""
    by_run: ListsByRun | None = None
    identity: ReportsIdentity | None = None
    """Identity of a provider that has no account."""
    ends: ReportsTermination | None = None
    networks: HasNetworks | None = None
    """Networks of runs; None: the machines of a run reach each other anyway."""
    volumes: HasVolumes | None = None
    """Its data volumes; None where it has none."""
    start_script: HasStartScript | None = None
    searches: ChecksItsSearch | None = None
    why_one_node: str = ""
    """Reason why a run can have only one machine there, or only on few hosts; empty: no limit."""
