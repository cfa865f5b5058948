"""The ports: what `flow` asks of the world. Every verb is safe to repeat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from vastrun.launcher.core import (
    Bundle,
    CheckpointCopy,
    Collected,
    Event,
    Fetched,
    Instance,
    LeftOutFiles,
    Offer,
    Progress,
    RentalOrder,
    Run,
    UserRequest,
)
from vastrun.launcher.ports.abilities import Abilities as Abilities
from vastrun.launcher.ports.abilities import ChecksItsSearch as ChecksItsSearch
from vastrun.launcher.ports.abilities import DescribesItself as DescribesItself
from vastrun.launcher.ports.abilities import HasAccount as HasAccount
from vastrun.launcher.ports.abilities import HasBills as HasBills
from vastrun.launcher.ports.abilities import HasHostLog as HasHostLog
from vastrun.launcher.ports.abilities import HasMarketReport as HasMarketReport
from vastrun.launcher.ports.abilities import HasNetworks as HasNetworks
from vastrun.launcher.ports.abilities import HasVolumes as HasVolumes
from vastrun.launcher.ports.abilities import KeepsKeys as KeepsKeys
from vastrun.launcher.ports.abilities import ListsByRun as ListsByRun
from vastrun.launcher.ports.abilities import ReportsIdentity as ReportsIdentity
from vastrun.launcher.ports.abilities import ReportsTermination as ReportsTermination
from vastrun.launcher.ports.ledger import Batches as Batches
from vastrun.launcher.ports.ledger import Ledger as Ledger
from vastrun.launcher.ports.ledger import RateLimitStore as RateLimitStore
from vastrun.launcher.ports.ledger import SecretStore as SecretStore
from vastrun.launcher.ports.ledger import VolumeRecords as VolumeRecords
from vastrun.launcher.ports.remotes import ChecksExchange as ChecksExchange
from vastrun.launcher.ports.remotes import ChecksIdentity as ChecksIdentity
from vastrun.launcher.ports.remotes import CountsNoise as CountsNoise
from vastrun.launcher.ports.remotes import Interruptible as Interruptible
from vastrun.launcher.ports.remotes import OpensTerminal as OpensTerminal
from vastrun.launcher.ports.remotes import Remote as Remote

if TYPE_CHECKING:
    from concurrent.futures import Future

    from vastrun.launcher.core.job import JobSpec
    from vastrun.launcher.decisions.notifications import BatchNotification, Notification

_T = TypeVar("_T")


class Clock(Protocol):
    """Time, and the only way to wait."""

    def now(self) -> float:
        """Return epoch seconds."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return after `seconds`, or at once when the user asked for something."""
        ...


class Provider(Protocol):
    """A market of machines."""

    name: str
    max_nodes: int
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

    def check_unused(self, run: Run) -> None:
        """Raise UsageError when the run's folder holds anything of others."""
        ...

    def check(self, run: Run) -> None:
        """Make the run's folder, unless it is there; see that it takes writes, and is the run's own.

        Raises UsageError.
        """
        ...

    def save_start_script(self, run: Run, text: str) -> None:
        """Keep the text that the run's machine is sent to run at each start."""
        ...

    def download_log(self, run: Run, remote: Remote) -> str:
        """Log text that is new since the last call, by any process; it is on disk before it is returned."""
        ...

    def download_checkpoint(self, run: Run, remote: Remote, *, limit: int) -> CheckpointCopy | None:
        """Bring up to `limit` bytes more of the box's newest checkpoint here; None: nothing to bring.

        It takes its place once it is whole and checked; of older ones, one stays.
        """
        ...

    def download_metrics(self, run: Run, remote: Remote) -> int:
        """Bring whole lines that are new of the box's metrics here; return how many bytes of them.

        A limited part at once: call again soon when many came. Raises BoxError when they are none.
        """
        ...

    def collect(self, run: Run, remote: Remote) -> Collected:
        """Bring everything that the box's manifest names, checked."""
        ...

    def fetch(self, run: Run, remote: Remote, path: str | None) -> Fetched:
        """Bring one file or folder that the program wrote, checked; None: all that was left out."""
        ...

    def left_out(self, run: Run) -> LeftOutFiles:
        """Return the files of the program that are not here, as its box listed them."""
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

    def has_targets(self, spec: JobSpec) -> bool:
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
