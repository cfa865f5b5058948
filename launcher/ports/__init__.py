"""The ports: what `flow` asks of the world. Every verb is safe to repeat."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from launcher.core import (
    AccountStatus,
    Bundle,
    Charge,
    CheckpointCopy,
    Collected,
    Completed,
    Event,
    Identity,
    Instance,
    LocalProgram,
    MachineEnd,
    Offer,
    Progress,
    RentalOrder,
    Run,
    RunNetwork,
    UserRequest,
)
from launcher.core.job import JobSpec
from launcher.decisions.market_report import MarketReport
from launcher.decisions.notifications import BatchNotification, Notification
from launcher.ports.ledger import Batches as Batches
from launcher.ports.ledger import Ledger as Ledger

_T = TypeVar("_T")


class Clock(Protocol):
    """Time, and the only way to wait."""

    def now(self) -> float:
        """Return epoch seconds."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return after `seconds`, or at once when the user asked for something."""
        ...


class Remote(Protocol):
    """A shell on an instance. Paths are relative to the box's folder.

    Every verb raises UnreachableError when the box cannot be reached, GoneError when it is no more, BoxError
    when it answers as no honest box does.
    """

    def run(self, command: str, *, timeout_s: float) -> Completed:
        """Run a shell command; return it once it is finished, whatever its exit code.

        Raises UnreachableError after `timeout_s`, BoxError when it prints more than `caps` allows.
        """
        ...

    def put(self, local_path: str, path: str) -> None:
        """Put the file on the box, whole: a reader never sees half of it. Raises ProviderError (no space)."""
        ...

    def write(self, path: str, content: bytes, *, mode: int = 0o600) -> None:
        """Put bytes from memory into a file on the box, as `put`."""
        ...

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        """Read up to `limit` bytes from `offset`; empty at the end of the file or when there is no such file.

        Fewer than there are when they come slowly: it returns within `caps.READ_S`.
        """
        ...

    def close(self) -> None:
        """Close the connection; the box goes on."""
        ...


@runtime_checkable
class ChecksIdentity(Protocol):
    """A remote that can say how it knows the machine."""

    @property
    def identity(self) -> str:
        """In words, once the machine was reached."""
        ...


@runtime_checkable
class Interruptible(Protocol):
    """A remote that can be interrupted while it waits."""

    def heed(self, check: Callable[[], None]) -> None:
        """Call `check` every second while a verb waits for the machine; what it raises ends the verb."""
        ...


@runtime_checkable
class OpensTerminal(Protocol):
    """A remote that the user can work on from this computer."""

    def terminal(self, command: str | None = None) -> LocalProgram:
        """Return what opens a shell in the box's folder, or runs `command` there.

        Reaches the box first, so that it is known to be ours. Raises as its other verbs do.
        """
        ...

    def tunnel(self, port: int, local_port: int) -> LocalProgram | None:
        """Return what makes the box's `port` one of this computer's until interrupted; None: it is one."""
        ...


@runtime_checkable
class CountsNoise(Protocol):
    """A remote whose machine prints lines that mean nothing."""

    @property
    def left_out(self) -> Mapping[str, int]:
        """How many were not shown in this run so far, by kind."""
        ...


class DescribesItself(Protocol):
    """A provider that needs software on this computer, which a user installs and starts."""

    def describe(self) -> str:
        """Say in words what it is. Raises ProviderError, which says what to install or start."""
        ...


class TellsIdentity(Protocol):
    """A provider to which this computer may be somebody else tomorrow: then it lists other machines."""

    def identity(self) -> Identity:
        """Return who we are to it, by one question. Raises AuthError, ProviderError."""
        ...


class HasAccount(TellsIdentity, Protocol):
    """A provider whose machines are paid for by an account."""

    def account_status(self) -> AccountStatus:
        """Return how the account stands. Changes nothing. Raises AuthError, ProviderError."""
        ...


class TellsEnds(Protocol):
    """A provider that takes machines back by itself, and says why."""

    def end_of(self, instance_id: str) -> MachineEnd | None:
        """Return why that machine ended; None: it has not, or it does not say. Raises ProviderError."""
        ...


class KeepsKeys(Protocol):
    """A provider that has a key of its own for each run."""

    def forget(self, run_id: str) -> None:
        """Remove the key that opened the run's machine from this computer."""
        ...


class HasBills(Protocol):
    """A provider that says afterwards what it charged."""

    def charged(self, since: float, until: float) -> Sequence[Charge]:
        """List what was charged on the days of that time, as far as it is settled.

        A machine may stand in several.

        Raises AuthError, ProviderError.
        """
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


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """What a provider can do besides the five verbs: who does it, or None where it cannot."""

    account: HasAccount | None = None
    bills: HasBills | None = None
    description: DescribesItself | None = None
    keys: KeepsKeys | None = None
    market: HasMarketReport | None = None
    rents_every_s: float = 0.0
    """It rents no more than one machine in so long."""
    by_run: ListsByRun | None = None
    identity: TellsIdentity | None = None
    """Of one that has no account."""
    ends: TellsEnds | None = None
    networks: HasNetworks | None = None
    """None: the machines of a run reach each other without."""
    why_one_node: str = ""
    """Why a run can have no more than one machine there, or only on few hosts, where that is so."""


class Provider(Protocol):
    """A market of machines."""

    name: str
    most_nodes: int
    """How many machines one run can have."""
    shared: bool
    """Other computers see and may end its machines: a label says whose they are."""
    list_lag_s: float
    """A machine that was asked for stands in its list so much later at the latest."""

    @property
    def free(self) -> bool:
        """True where machines cost nothing, so that no confirmation is asked for."""
        ...

    @property
    def abilities(self) -> Abilities:
        """What it can do besides."""
        ...

    def search(self, spec: JobSpec) -> Sequence[Offer]:
        """List offers that fit every hard limit of the job, best first.

        Empty when none does, or NoOfferError where it can be said why.
        """
        ...

    def rent(self, order: RentalOrder) -> Instance:
        """Rent a machine that carries `order.label`. Asks once.

        Raises NoOfferError when the offer is taken, UncertainError when the machine may exist.
        """
        ...

    def instances(self) -> Sequence[Instance]:
        """List every machine of ours.

        Raises ProviderError when it cannot be told: never an empty list instead.

        It may be late: a machine that is new, or just changed, is asked for by its id.
        """
        ...

    def machine(self, instance_id: str) -> Instance | None:
        """Return the machine with that id, whatever its label; None when there is none.

        Raises ProviderError.
        """
        ...

    def connect(self, instance: Instance) -> Remote:
        """Open a shell on the instance.

        Raises UnreachableError, GoneError; ProviderError, with its cause, when it will never answer.
        """
        ...

    def destroy(self, instance_id: str) -> None:
        """Ask for the machine's end; return when the provider agreed or has no such machine."""
        ...


class RunThreads(Protocol):
    """Threads that drive runs, nodes of one, or batches."""

    def submit(self, work: Callable[[], _T], /) -> Future[_T]:
        """Do the work beside all other work."""
        ...


class Packer(Protocol):
    """Packs what a box needs."""

    def check(self, spec: JobSpec) -> None:
        """Look at the code, the command and the secrets as packing will. Raises UsageError; makes nothing."""
        ...

    def pack(self, run: Run, spec: JobSpec) -> Bundle:
        """Make one archive of the onstart scripts, the trainer, the job and the user's code."""
        ...

    def secrets(self, spec: JobSpec, run: Run | None = None) -> bytes:
        """Return the job's secrets as lines of `NAME='value'`. Raises UsageError when one is missing.

        `run`: whose they are; those of another computer's are not looked for on this one.
        """
        ...

    def lease(self) -> str:
        """Text of the lease script."""
        ...


class OutputStore(Protocol):
    """Where a run's outputs come to lie on this computer. Raises StorageError when it cannot write."""

    def must_be_free(self, run: Run) -> None:
        """Raise UsageError when the run's folder holds anything of others."""
        ...

    def check(self, run: Run) -> None:
        """Make the run's folder, unless it is there; see that it takes writes, and is the run's own.

        Raises UsageError.
        """
        ...

    def pump(self, run: Run, remote: Remote) -> str:
        """Log text that is new since the last call, by any process; it is on disk before it is returned."""
        ...

    def save_checkpoint(self, run: Run, remote: Remote, *, limit: int) -> CheckpointCopy | None:
        """Bring up to `limit` bytes more of the box's newest checkpoint here; None: nothing to bring.

        It takes its place once it is whole and checked; of older ones, one stays.
        """
        ...

    def save_metrics(self, run: Run, remote: Remote) -> int:
        """Bring whole lines that are new of the box's metrics here; return how many bytes of them.

        A limited part at once: call again soon when many came. Raises BoxError when they are none.
        """
        ...

    def collect(self, run: Run, remote: Remote) -> Collected:
        """Bring everything that the box's manifest names, checked."""
        ...

    def describe(self, run: Run, now: float) -> None:
        """Write into the folder what came home, how the run stands and what to do with it.

        Writes nothing of a run that brought nothing home.
        """
        ...


class Screen(Protocol):
    """The user's eyes."""

    def event(self, event: Event) -> None:
        """Show a step of the road."""
        ...

    def log(self, text: str) -> None:
        """New lines of the training's log."""
        ...

    def progress(self, run: Run, progress: Progress, *, usd: float) -> None:
        """Show where the run stands, at every moment: it may have moved on or not."""
        ...


class Notifier(Protocol):
    """Tells a user who is not looking. A run never depends on it: only `check` raises, and nothing waits."""

    def check(self, spec: JobSpec) -> None:
        """Raise UsageError when somebody whom the job names cannot be addressed."""
        ...

    def wanted(self, spec: JobSpec) -> bool:
        """Return whether there is somebody to tell."""
        ...

    def send(self, notification: Notification | BatchNotification, spec: JobSpec) -> None:
        """Send the notification on its way."""
        ...


class UserRequests(Protocol):
    """What the user at this keyboard asks for."""

    def current(self) -> UserRequest:
        """Return the strongest request so far."""
        ...
