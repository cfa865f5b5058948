"""Remotes: a shell on an instance; abilities: optional interfaces of a remote and of a provider."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol, TypeVar, cast, runtime_checkable

from vastrun.launcher import core
from vastrun.launcher.core.market import ScheduledEnd, SearchFinding

if TYPE_CHECKING:
    from vastrun.launcher.core.job import JobSpec
    from vastrun.launcher.decisions.estimates import MarketReport


_W = TypeVar("_W")


class Remote(Protocol):
    """A shell on an instance. Paths are relative to the box's folder.

    Every method raises UnreachableError when the box cannot be reached, GoneError when it does not exist,
    BoxError when its response is invalid.
    """

    def run(self, command: str, *, timeout_s: float) -> core.CommandResult:
        """Run a shell command; return its result with any exit code.

        Raises UnreachableError after `timeout_s`, BoxError when it prints more than `caps` allows.
        """

    def put(self, local_path: str, path: str) -> None:
        """Upload the file to the box atomically. Raises ProviderError (no space)."""

    def write(self, path: str, content: bytes, *, mode: int = 0o600) -> None:
        """Write bytes to a file on the box, atomically."""

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        """Read up to `limit` bytes from `offset`; empty at the end of the file or when the file does not
        exist.

        Returns `caps.READ_S` after the first byte, with fewer bytes on a slow connection. Raises
        SliceOverError when the time for it is over before that byte.
        """

    def close(self) -> None:
        """Close the connection; the box continues."""


@runtime_checkable
class ChecksExchange(Protocol):
    """A remote of a run, whose exchanges can be stopped by the user, time or money."""

    def raise_if_stopped(self) -> None:
        """Raise RunStopped when the exchange must stop; otherwise return at once."""


@runtime_checkable
class ChecksIdentity(Protocol):
    """A remote that reports how it authenticated the machine."""

    @property
    def identity(self) -> str:
        """Description, once the machine was reached."""


@runtime_checkable
class Interruptible(Protocol):
    """A remote that can be interrupted while it waits."""

    def set_interrupt_check(self, check: Callable[[], None]) -> None:
        """Call `check` every second while a method waits for the machine; what it raises ends the method."""

    def abort(self) -> None:
        """Break the connection, from another thread: a method that waits for the machine raises soon.

        The next method connects again.
        """


@runtime_checkable
class OpensTerminal(Protocol):
    """A remote on which the user can open a terminal."""

    def terminal(self, command: str | None = None) -> core.LocalProgram:
        """Return the program that opens a shell in the box's folder, or runs `command` there.

        Connects to the box first, to authenticate it. Raises as the other methods.
        """

    def tunnel(self, port: int, local_port: int) -> core.LocalProgram | None:
        """Return the program that forwards `local_port` to the box's `port`; None: none is needed."""


@runtime_checkable
class AllowsSsh(Protocol):
    """A remote whose box the user's own programs reach by SSH: an editor, rsync, scp."""

    def ssh_access(self) -> core.SshAccess:
        """Return how to log in, at the address that answers now.

        Connects to the box first, to check and store its host key. Raises UsageError where the box has no
        SSH server after all, and as the other methods.
        """


@runtime_checkable
class SeesGrowth(Protocol):
    """A remote that sees a file of the box grow, without a request for each look."""

    def has_grown(self, path: str) -> bool | None:
        """Return whether `path` has bytes that no `read` has returned; None where that is not known.

        The first call says which file is meant: it is known from the next `read` of it on. A connection that
        breaks is for the next request to notice.
        """


REMOTE_ABILITIES: Collection[type] = (
    ChecksExchange,
    ChecksIdentity,
    Interruptible,
    OpensTerminal,
    AllowsSsh,
    SeesGrowth,
)
"""The optional interfaces of a remote."""


def with_abilities(wrapper: type[_W], inner: Remote, *, without: Collection[str] = ()) -> type[_W]:
    """Return a subclass of `wrapper`, a remote around `inner` as its `_inner`, with the abilities of `inner`.

    Members that `wrapper` defines stay; those named in `without` are not added. They are members of the class
    because since Python 3.12 `isinstance` does not call `__getattr__`.
    """
    able = (ability for ability in REMOTE_ABILITIES if isinstance(inner, ability))
    names = {name for ability in able for name in vars(ability) if not name.startswith("_")}
    members = {
        name: property(attrgetter(f"_inner.{name}"))
        for name in names.difference(without)
        if not hasattr(wrapper, name)
    }
    return cast("type[_W]", type(wrapper.__name__, (wrapper,), members))


class ReportsIdentity(Protocol):
    """A provider whose key may belong to another account later, and then lists other machines."""

    def identity(self) -> core.Identity:
        """Return the account of the key, by one request. Raises AuthError, ProviderError."""


class HasAccount(ReportsIdentity, Protocol):
    """A provider whose machines are paid for by an account."""

    def account_status(self) -> core.AccountStatus:
        """Return the status of the account. Read-only. Raises AuthError, ProviderError."""


class KeepsKeys(Protocol):
    """A provider with a separate key for each run."""

    def forget(self, run_id: str) -> None:
        """Remove the key that opened the run's machine from this computer."""


class HasHostLog(Protocol):
    """A provider that shows what the host of a machine wrote about its start."""

    def host_log(self, instance_id: str, *, within_s: float) -> str:
        """Return the end of the host's log, which is untrusted text.

        Raises UnreachableError where it is not available within that time, ProviderError.
        """

    def cause_in(self, host_log: str) -> core.Cause | None:
        """Return the cause of a failed start by the host's log; None: unknown."""


class HasNetworks(Protocol):
    """A provider whose machines reach each other only on a network that it creates for their run.

    It creates it with the first machine of an order with several nodes. A network is identified by the
    label of node 0, so that the next launcher finds it.
    """

    def rendezvous(self, label: str, remote: Remote) -> str:
        """Return HOST:PORT at which the machine behind `remote` is reached on the network of that label.

        Raises ProviderError, with the cause HOST, when it is not on that network; UnreachableError.
        """

    def run_networks(self) -> Sequence[core.RunNetwork]:
        """List the networks that vastrun created. Raises AuthError, ProviderError: the list is unknown."""

    def remove_network(self, label: str) -> None:
        """Remove the network of that label; return once it does not exist.

        Raises AuthError, ProviderError when it may still exist.
        """


class EndsLater(Protocol):
    """A provider whose own servers destroy a machine at a set time, whatever became of vastrun's programs."""

    def schedule_end(self, instance_id: str, after_s: float) -> None:
        """Have the machine destroyed more than `after_s` seconds from now, soon after that.

        Replaces the time that was set before. Raises AuthError, ProviderError.
        """

    def cancel_end(self, instance_id: str) -> None:
        """Remove what was scheduled for the machine. Raises AuthError, ProviderError."""

    def scheduled_ends(self) -> Sequence[ScheduledEnd]:
        """List the scheduled ends of the account, by any program. Raises AuthError, ProviderError."""


class ListsByRun(Protocol):
    """A provider whose machines are on several others, of which one may be unreachable."""

    def instances_for(self, run: core.Run) -> Sequence[core.Instance]:
        """List machines as `instances`, at least those of the run, without asking the other providers.

        Raises ProviderError when the list is unknown.
        """


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """Optional abilities of a provider: a function or an object that implements each, or None."""

    account: HasAccount | None = None
    charged: Callable[[float, float], Sequence[core.Charge]] | None = None
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
    end_of: Callable[[str], core.MachineEnd | None] | None = None
    """Returns why the provider itself ended the machine with that id; None: it has not, or the reason is
    unknown. Raises UnreachableError while it is just being ended, ProviderError."""
    notes: Callable[[], Sequence[str]] | None = None
    """Returns what the last search found in each part of the provider, as in the partitions of a cluster."""
    networks: HasNetworks | None = None
    """Networks of runs; None: the machines of a run reach each other anyway."""
    start_script: Callable[[core.RentalOrder], str] | None = None
    """Returns the script that a machine runs at each start, in readable form. Contains no secret."""
    search_findings: Callable[[], Iterable[SearchFinding]] | None = None
    """Searches the market, and reports whether its offers can be read. Costs nothing."""
    backups: Callable[[str], Sequence[str]] | None = None
    """Names the backups that the provider made of the machine with that id before it took it away, by one
    request. Raises AuthError, ProviderError."""
    why_one_node: str = ""
    """Reason why a run can have only one machine there, or only on few hosts; empty: no limit."""
