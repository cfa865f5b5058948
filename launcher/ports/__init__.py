"""Ports: the interfaces through which `flow` reaches the world. Every method is safe to repeat."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from vastrun.contract.data_files import DataReceipt
from vastrun.launcher import core
from vastrun.launcher.ports.abilities import REMOTE_ABILITIES as REMOTE_ABILITIES
from vastrun.launcher.ports.abilities import Abilities as Abilities
from vastrun.launcher.ports.abilities import AllowsSsh as AllowsSsh
from vastrun.launcher.ports.abilities import ChecksExchange as ChecksExchange
from vastrun.launcher.ports.abilities import ChecksIdentity as ChecksIdentity
from vastrun.launcher.ports.abilities import HasNetworks as HasNetworks
from vastrun.launcher.ports.abilities import Interruptible as Interruptible
from vastrun.launcher.ports.abilities import OpensTerminal as OpensTerminal
from vastrun.launcher.ports.abilities import Remote as Remote
from vastrun.launcher.ports.abilities import SeesGrowth as SeesGrowth
from vastrun.launcher.ports.abilities import with_abilities as with_abilities
from vastrun.launcher.ports.ledger import Batches as Batches
from vastrun.launcher.ports.ledger import Ledger as Ledger
from vastrun.launcher.ports.ledger import RateLimitStore as RateLimitStore
from vastrun.launcher.ports.ledger import SecretStore as SecretStore

if TYPE_CHECKING:
    from concurrent.futures import Future

    from vastrun.launcher.core.job import JobSpec

_T = TypeVar("_T")


class Clock(Protocol):
    """Time, and the only way to wait."""

    def now(self) -> float:
        """Return epoch seconds."""

    def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`; return early on a user request."""


class Provider(Protocol):
    """A market of machines."""

    name: str
    max_nodes: int
    """Max. machines of one run."""
    shared: bool
    """True if other computers see and may destroy its machines: a label contains their ledger."""
    list_lag_s: float
    """Max. seconds from an order until the machine is in the list."""

    @property
    def free(self) -> bool:
        """True where machines cost nothing, so that no confirmation is asked for."""

    @property
    def abilities(self) -> Abilities:
        """Optional abilities."""

    def search(self, spec: JobSpec) -> Sequence[core.Offer]:
        """List offers that fit every hard limit of the job, best first.

        Empty when none does, or NoOfferError with the reason where it is known.
        """

    def rent(self, order: core.RentalOrder) -> core.Instance:
        """Rent a machine with `order.label`. Sends one request.

        Raises NoOfferError when the offer is taken, UncertainError when the machine may exist.
        """

    def instances(self) -> Sequence[core.Instance]:
        """List all machines of this user.

        Raises ProviderError when the list is unknown, and never returns an empty list instead.

        The list may be late: look up a new or just changed machine by its id.
        """

    def machine(self, instance_id: str) -> core.Instance | None:
        """Return the machine with that id, whatever its label; None when there is none.

        Raises ProviderError.
        """

    def connect(self, instance: core.Instance) -> Remote:
        """Open a shell on the instance.

        Raises UnreachableError, GoneError; ProviderError, with its cause, when it will never answer.
        """

    def destroy(self, instance_id: str) -> None:
        """Request the machine's end; return when the provider accepted it or has no such machine."""


class RunThreads(Protocol):
    """Threads that drive runs, nodes of one, or batches."""

    def submit(self, work: Callable[[], _T], /) -> Future[_T]:
        """Run the work concurrently."""


class Packer(Protocol):
    """Packs the files that a box needs."""

    def check(self, spec: JobSpec, *, is_own_job: bool = True) -> JobSpec:
        """Check what is shipped without packing; return the job with the size of its data. Raises UsageError.

        `is_own_job`: the job was read from a file of this computer, not from a ledger that others write to.
        """

    def keep_code(self, spec: JobSpec) -> JobSpec:
        """Keep the job's code as it is now, and return the job with its digest and those of its local data;
        as given where it has them.

        Raises UsageError, StorageError.
        """

    def changed_code(self, spec: JobSpec) -> list[str]:
        """Return the names of the files that changed since the code was kept; empty if that is unknown."""

    def pack(self, run: core.Run, spec: JobSpec) -> core.Bundle:
        """Make one archive of the onstart scripts, the trainer, the job and the user's code."""

    def data_contents(self, run: core.Run, spec: JobSpec) -> core.DataContents | None:
        """Return what is sent of the job's local data; None: nothing. Raises UsageError if they changed."""

    def pack_data(self, run: core.Run, spec: JobSpec, lacks: DataReceipt) -> tuple[str, int]:
        """Write the next pack of what the machine lacks; return its path, and the bytes of files in it.

        Raises UsageError when a file changed or is gone.
        """

    def secrets(self, spec: JobSpec, run: core.Run | None = None) -> bytes:
        """Return the job's secrets as lines of `NAME='value'`. Raises UsageError when one is missing.

        `run`: its secrets; those of another computer's run are not read from this computer.
        """

    def known_secrets(self, spec: JobSpec, run: core.Run) -> bytes | None:
        """Return the same without running a command that prints one; None: one is not known.

        Raises as `secrets`.
        """

    def lease(self) -> str:
        """Return the text of the lease script."""


class OutputStore(Protocol):
    """Store of a run's outputs on this computer. Raises StorageError when it cannot write."""

    def check_unused(self, run: core.Run) -> None:
        """Raise UsageError when the run's folder contains foreign files."""

    def check(self, run: core.Run) -> None:
        """Create the run's folder if missing; check that it is writable and the run's own.

        Raises UsageError.
        """

    def save_start_script(self, run: core.Run, text: str) -> None:
        """Save the script that the run's machine runs at each start."""

    def download_log(self, run: core.Run, remote: Remote) -> str:
        """Download and return log text that is new since the last call of any process; it is saved first."""

    def download_checkpoint(self, run: core.Run, remote: Remote, *, limit: int) -> core.CheckpointCopy | None:
        """Download up to `limit` more bytes of the box's newest checkpoint; None: nothing to download.

        It is put in place once it is complete and checked; one older checkpoint is kept.
        """

    def download_metrics(self, run: core.Run, remote: Remote) -> int:
        """Download new whole lines of the box's metrics; return the number of bytes.

        Downloads a limited part: call again soon after a large one. Raises BoxError when they are invalid.
        """

    def collect(self, run: core.Run, remote: Remote) -> core.CollectResult:
        """Download and check everything in the box's manifest."""

    def fetch(
        self, run: core.Run, remote: Remote, path: str | None, *, max_bytes: float = math.inf
    ) -> core.PullResult:
        """Download and check one file or folder that the program wrote; None: all files that were left
        out. A file with which they would be more than `max_bytes` is not downloaded."""

    def left_out(self, run: core.Run) -> core.LeftOutFiles:
        """Return the program's files that are not downloaded, as its box listed them."""

    def describe(self, run: core.Run, now: float) -> None:
        """Write a description into the folder: downloaded files, state of the run, next steps.

        Writes nothing for a run without downloads.
        """


class Screen(Protocol):
    """Output to the user."""

    def report(self, event: core.Event) -> None:
        """Show an event of the run."""

    def log(self, text: str) -> None:
        """Show new lines of the training's log."""

    def progress(self, run: core.Run, progress: core.Progress, *, usd: float) -> None:
        """Show the progress of the run; also called without a change."""


class UserRequests(Protocol):
    """Requests of the user at this keyboard."""

    def current(self) -> core.UserRequest:
        """Return the strongest request so far."""
