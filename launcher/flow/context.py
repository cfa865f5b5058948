"""Run context: one drive of a run: its row, its machine, the connection, and what ends it early."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vastrun.contract import layout
from vastrun.launcher.core import Cause, CommandResult, Instance, Phase, Run
from vastrun.launcher.core.errors import GoneError, NoRoomError, ProviderError, SliceOverError, VastrunError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions import policy
from vastrun.launcher.decisions.offer_check import TrafficMeasure
from vastrun.launcher.flow.machines import RunMachines
from vastrun.launcher.flow.run_state import Detached, RunState, RunStopped, failed
from vastrun.launcher.flow.services import Services
from vastrun.launcher.gate.caps import SLICE_S
from vastrun.launcher.ports import Interruptible, Remote, SeesGrowth

_ABANDONED_PHASES = (Phase.BOOT, Phase.SHIP)
"""Phases that are abandoned once another node has failed. A training still has its outputs."""


class RunContext(RunState):
    """One drive of a run: its state, machines and connection, the user's requests and the limits."""

    def __init__(self, run: Run, spec: JobSpec, services: Services) -> None:
        super().__init__(run, spec, services)
        self.machine: Instance | None = None
        """The machine as last listed for a connection."""
        self.machines = RunMachines(self)
        self.is_account_checked = False
        """True once the key was found to belong to the run's account."""
        self.has_program_ended = self.run.phase is Phase.COLLECT
        """True once the machine reported that the program has ended."""
        self.has_scheduled_end = True
        """False once the provider refused to schedule the end of the machine."""
        self._remote: GuardedRemote | None = None
        self._connected: GuardedRemote | None = None
        """The shell that was opened last, whose connection the guard's thread may abort."""
        self._space_reported_in: Phase | None = None
        self._slice_ends_at = math.inf
        self.start_grace_period()

    def start_grace_period(self) -> None:
        """Give a launcher that finds a run past its limits some time to download what is there."""
        late = policy.exceeded_limit(self.spec, self.run, self.now()) is not None
        self._limits_count_from = self.now() + (policy.LATE_GRACE_S if late else 0.0)

    def has_log_grown(self) -> bool | None:
        """Return whether the log on the machine has grown since it was read; None where that is not seen."""
        return self.remote().has_grown(layout.LOG)

    def new_log(self) -> str:
        """Download what is new in the log. Without space for it here, it stays on the box."""
        try:
            with suppress(SliceOverError), self.time_slice():
                return self.services.output_store.download_log(self.run, self.remote())
        except NoRoomError as error:
            self.report_no_space(error, "the log stays on the machine until there is space here")
        return ""

    def report_no_space(self, error: NoRoomError, what: str) -> None:
        """Report, once a phase, that this computer's disk is full, and the consequence."""
        if self._space_reported_in is not self.run.phase:
            self.report(f"{error}; {what}")
        self._space_reported_in = self.run.phase

    @property
    def is_in_grace_period(self) -> bool:
        """True while a run that was past its limits when this launcher came may still be downloaded."""
        return self.now() < self._limits_count_from

    def exceeded_limit(self) -> Cause | None:
        """Return the limit that was passed by this launcher's own count.

        None: no limit was passed, or the grace period is not over.
        """
        if self.is_in_grace_period:
            return None
        return policy.exceeded_limit(self.spec, self.machines.confirmed_run(), self.now())

    def raise_if_stopped(self) -> None:
        """Raise what the user requested, and RunStopped when a limit is passed, or another node has failed
        while nothing is trained yet.

        Called before each request to the box, and while its response is awaited.
        """
        self._raise_if_over_limit()
        if self.run.phase in _ABANDONED_PHASES and (end := self.nodes.end()) is not None:
            raise RunStopped(end)

    def abort_if_stopped(self) -> None:
        """Abort the connection to the machine once the user, time or money ends the drive. For the guard's
        thread.

        The request that waits for the machine then fails, and raises what `raise_if_stopped` does.
        """
        try:
            self._raise_if_over_limit()
        except (Detached, RunStopped):
            if self._connected is not None:
                self._connected.abort()
        except VastrunError:  # the ledger cannot be read: the run's own thread meets that, too
            return

    def _raise_if_over_limit(self) -> None:
        self.raise_if_requested()
        cause = self.exceeded_limit()
        if cause is not None:
            raise RunStopped(failed(cause, "past its limit, and its lease did not destroy it"))

    def _before_request(self) -> None:
        """Update the screen and check the limits; called before and during each request to the box."""
        self.show()
        self.raise_if_stopped()

    @contextmanager
    def time_slice(self, seconds: float = SLICE_S) -> Iterator[None]:
        """Limit the seconds for which reads of files wait; those that take longer raise SliceOverError."""
        self._slice_ends_at = self.now() + seconds
        try:
            yield
        finally:
            self._slice_ends_at = math.inf

    def _during_read(self) -> None:
        self._before_request()
        if self.now() >= self._slice_ends_at:
            raise SliceOverError("the machine sends too slowly")

    def remote(self) -> GuardedRemote:
        """Open a shell on this run's machine, once. Raises UnreachableError, GoneError."""
        if self._remote is None:
            self.machine = self.machines.own()
            if self.machine is None:
                raise GoneError(f"the provider lists no machine labelled {self.run.label}")
            self._remote = self.open_shell(self.machine)
        return self._remote

    def open_shell(self, machine: Instance) -> GuardedRemote:
        """Open a shell on a machine of the run; the caller closes it. Raises as `remote`."""
        remote = self.services.provider.connect(machine)
        self._connected = GuardedRemote(
            remote, self._before_request, self._during_read, self.machines.traffic, self.services.call
        )
        return self._connected

    def disconnect(self) -> None:
        """Close the connection; the next `remote()` connects again."""
        if self._remote is not None:
            self._remote.close()
            self._remote = None


class GuardedRemote:
    """A Remote that calls `check` before each request and during long ones; what `check` raises ends the
    request. It counts what it transfers, and makes each call by `call`."""

    def __init__(
        self,
        remote: Remote,
        check: Callable[[], None],
        check_read: Callable[[], None],
        traffic: TrafficMeasure,
        call: Callable[..., Any],
    ) -> None:
        """`check_read` takes the place of `check` while a file is read."""
        self._check, self._traffic, self._call = check, traffic, call
        self._check_read, self._check_now = check_read, check
        self.connection = remote
        """The real remote, for optional protocols such as `ChecksIdentity`."""
        if isinstance(remote, Interruptible):
            remote.set_interrupt_check(lambda: self._check_now())

    def raise_if_stopped(self) -> None:
        """Raise RunStopped when the user, time or money ends the exchange."""
        self._check()

    def abort(self) -> None:
        """Break the connection, from another thread, where the remote can be interrupted."""
        if isinstance(self.connection, Interruptible):
            self.connection.abort()

    def run(self, command: str, *, timeout_s: float) -> CommandResult:
        self._check()
        result: CommandResult = self._ask("remote.run", self.connection.run, command, timeout_s=timeout_s)
        self._traffic.received(len(result.stdout))
        return result

    def put(self, local_path: str, path: str) -> None:
        self._check()
        self._ask("remote.put", self.connection.put, local_path, path)
        self._traffic.sent(Path(local_path).stat().st_size)

    def write(self, path: str, content: bytes, *, mode: int = 0o600) -> None:
        self._check()
        self._ask("remote.write", self.connection.write, path, content, mode=mode)
        self._traffic.sent(len(content))

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        self._check_read()
        read = self.connection.read
        self._check_now = self._check_read
        try:
            content: bytes = self._ask("remote.read", read, path, offset=offset, limit=limit)
        finally:
            self._check_now = self._check
        self._traffic.received(len(content))
        return content

    def has_grown(self, path: str) -> bool | None:
        """Return whether the file has bytes that were not read, as `SeesGrowth`; None where it cannot say."""
        remote = self.connection
        return remote.has_grown(path) if isinstance(remote, SeesGrowth) else None

    def close(self) -> None:
        self.connection.close()

    def _ask(self, verb: str, act: Callable[..., Any], *args: Any, **options: Any) -> Any:
        try:
            return self._call(verb, act, *args, **options)
        except ProviderError:
            self._check()  # the guard's thread may have aborted it
            raise
