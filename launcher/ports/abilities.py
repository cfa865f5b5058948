"""Abilities: optional interfaces of a provider."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from vastrun.launcher.core import (
    AccountStatus,
    Cause,
    Charge,
    Identity,
    Instance,
    MachineEnd,
    RentalOrder,
    Run,
    RunNetwork,
)
from vastrun.launcher.core.market import ScheduledEnd, SearchFinding
from vastrun.launcher.ports.remotes import Remote

if TYPE_CHECKING:
    from vastrun.launcher.core.job import JobSpec
    from vastrun.launcher.decisions.market_report import MarketReport


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


class KeepsKeys(Protocol):
    """A provider with a separate key for each run."""

    def forget(self, run_id: str) -> None:
        """Remove the key that opened the run's machine from this computer."""
        ...


class TakesBids(Protocol):
    """A provider that rents machines to who bids most."""

    def change_bid(self, instance_id: str, usd_per_hour: float) -> None:
        """Bid that much for the machine's GPUs; one that was outbid runs again if the bid wins.

        Raises GoneError, ProviderError when the bid is refused; UnreachableError when that is unknown.
        """
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


class EndsLater(Protocol):
    """A provider whose own servers destroy a machine at a set time, whatever became of vastrun's programs."""

    def schedule_end(self, instance_id: str, after_s: float) -> None:
        """Have the machine destroyed more than `after_s` seconds from now, soon after that.

        Replaces the time that was set before. Raises AuthError, ProviderError.
        """
        ...

    def cancel_end(self, instance_id: str) -> None:
        """Remove what was scheduled for the machine. Raises AuthError, ProviderError."""
        ...

    def scheduled_ends(self) -> Sequence[ScheduledEnd]:
        """List what is scheduled for machines of the account, by any program. Raises AuthError,
        ProviderError."""
        ...


class ListsByRun(Protocol):
    """A provider whose machines are on several others, of which one may be unreachable."""

    def instances_for(self, run: Run) -> Sequence[Instance]:
        """List machines as `instances`, at least those of the run, without asking the other providers.

        Raises ProviderError when the list is unknown.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """Optional abilities of a provider: a function or an object that implements each, or None."""

    account: HasAccount | None = None
    bids: TakesBids | None = None
    """Changes bids for machines that were rented by one; None: it takes none."""
    charged: Callable[[float, float], Sequence[Charge]] | None = None
    """Lists the charges on the days from one time to another, as far as they are settled; a machine may have
    several. Raises AuthError, ProviderError."""
    describe: Callable[[], str] | None = None
    """Describes the software on this computer that the provider needs. Raises ProviderError with what to
    install or start."""
    host_log: HasHostLog | None = None
    keys: KeepsKeys | None = None
    market: Callable[[JobSpec], MarketReport] | None = None
    """Reports the offers within the job's limits, and the cost of each. Costs nothing."""
    rents_every_s: float = 0.0
    """Min. seconds between two orders."""
    by_run: ListsByRun | None = None
    ends_later: EndsLater | None = None
    identity: ReportsIdentity | None = None
    """Identity of a provider that has no account."""
    end_of: Callable[[str], MachineEnd | None] | None = None
    """Returns why the provider itself ended the machine with that id; None: it has not, or the reason is
    unknown. Raises UnreachableError while it is just being ended, ProviderError."""
    networks: HasNetworks | None = None
    """Networks of runs; None: the machines of a run reach each other anyway."""
    start_script: Callable[[RentalOrder], str] | None = None
    """Returns the script that a machine runs at each start, in readable form. Contains no secret."""
    search_findings: Callable[[], Iterable[SearchFinding]] | None = None
    """Searches the market, and reports whether its offers can be read. Costs nothing."""
    backups: Callable[[str], Sequence[str]] | None = None
    """Names the backups that the provider made of the machine with that id before it took it away, by one
    request. Raises AuthError, ProviderError."""
    why_one_node: str = ""
    """Reason why a run can have only one machine there, or only on few hosts; empty: no limit."""
