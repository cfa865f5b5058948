"""Drivers: a separate launcher process for a run or a batch, which continues when its command has ended.

A Python program that starts one may be a notebook: its kernel may be closed while a machine is rented, its
user may interrupt a cell at any moment, and its code may run in any thread. A thread would end with the
kernel, get Ctrl-C as an exception anywhere, and could not handle signals. So a process in a new session
does what `vastrun resume` does. If it is killed, the lease still limits the run, and another launcher may
take over.

A driver in the background has a record and a log in the state folder. It keeps its record locked while it
lives, and removes it once its work is done. A record without a lock is from a driver that died: the next
command replaces it.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal

from vastrun.contract.records import RecordError, read_json
from vastrun.launcher.core import Cause, errors
from vastrun.launcher.core.errors import HeldError, JobFileError, StorageError, VastrunError
from vastrun.launcher.gate.text import printable
from vastrun.launcher.ledger.presence import is_locked

_MODULE = "vastrun.launcher.api.driver_process"
BACKGROUND = "--background"
"""Option of a driver that has a record, and tries again where it cannot go on."""
_STDIN = 0
_MAX_PIPE_BYTES = 1 << 16
"""Bytes that a pipe takes at once, on Linux and on a Mac."""
START_TIMEOUT_S = 20.0
"""Longest wait for a new driver to hold its run or batch, in seconds."""
MAX_LOGS = 50
"""Maximum number of logs; the oldest are removed."""
_POLL_S = 0.1


@dataclass(frozen=True)
class Target:
    """A run or a batch to drive."""

    kind: Literal["run", "batch"]
    name: str
    """Id of the run, or name of the batch."""

    @property
    def resume_command(self) -> str:
        """Return the command that continues it from a terminal."""
        return f"vastrun {'batch ' if self.kind == 'batch' else ''}resume {self.name}"


class ProcessDriver:
    """A launcher in a separate process, which outlives this one and gets no Ctrl-C."""

    def __init__(self, target: Target, secrets: bytes = b"") -> None:
        """Start the process, which keeps `secrets` in memory. Raises VastrunError if this computer cannot."""
        self._target = target
        try:
            # A file without a name needs no clean-up; an unread pipe would block the launcher.
            self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as this
            self._process = _spawn(target, secrets, subprocess.DEVNULL, self._stderr)
        except OSError as error:
            raise VastrunError(
                f"cannot start a launcher for {target.name}: {error.strerror or error}",
                hint=target.resume_command,
            ) from error

    def is_alive(self) -> bool:
        """Return whether the process is running."""
        return self._process.poll() is None

    def error(self) -> VastrunError | None:
        """Return the error that ended it early; None if its work was done."""
        code = self._process.wait()
        if code == 0:
            return None
        self._stderr.seek(0)
        lines = self._stderr.read()[-(1 << 16) :].decode("utf-8", "replace").strip().splitlines()
        last = lines[-1] if lines else ""
        return error_in(last) or VastrunError(
            f"the launcher of {self._target.name} ended with exit code {code}{last and f': {last}'}",
            hint=self._target.resume_command,
        )


def _spawn(
    target: Target,
    secrets: bytes,
    stdout: int | IO[bytes],
    stderr: IO[bytes],
    *options: str,
    folder: str | None = None,
) -> subprocess.Popen[bytes]:
    """Start the process in a new session, without a terminal. Raises OSError."""
    with handed_over(secrets) as stdin:
        return subprocess.Popen(
            # -P: files in the current folder must not shadow vastrun's modules.
            [sys.executable, "-P", "-m", _MODULE, target.kind, target.name, *options],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            cwd=folder,
        )


StartDriver = Callable[[Target, bytes], ProcessDriver]
"""Starts the launcher of a target, which gets these secrets to keep in its memory."""


@contextmanager
def handed_over(secrets: bytes) -> Iterator[int]:
    """Yield the stdin of a driver: a pipe with these secrets, which so are in no file and no argument.

    Secrets that do not fit into a pipe are left out: the driver runs their commands itself.
    """
    reader, writer = os.pipe()
    try:
        os.set_blocking(writer, False)
        if len(secrets) <= _MAX_PIPE_BYTES:
            with suppress(BlockingIOError):
                os.write(writer, secrets)
        os.close(writer)
        yield reader
    finally:
        os.close(reader)


def take_secrets() -> bytes:
    """Return what `handed_over` put into stdin, and leave an empty stdin behind."""
    with suppress(OSError):
        if stat.S_ISFIFO(os.fstat(_STDIN).st_mode):
            content = os.read(_STDIN, _MAX_PIPE_BYTES + 1)
            empty = os.open(os.devnull, os.O_RDONLY)
            os.dup2(empty, _STDIN)
            os.close(empty)
            return content
    return b""


def error_line(error: VastrunError) -> str:
    """Serialize the error as a line for another process."""
    faults = list(error.faults) if isinstance(error, JobFileError) else None
    fields = {"message": printable(str(error)), "hint": error.hint, "cause": error.cause, "faults": faults}
    return json.dumps({"error": type(error).__name__, **fields})


def error_in(line: str) -> VastrunError | None:
    """Parse the error that `error_line` wrote; None if the line is something else."""
    try:
        fields: Any = json.loads(line)
        kind = getattr(errors, fields["error"])
        if fields["faults"] is not None:
            error = kind(tuple(fields["faults"]))
            return error if isinstance(error, JobFileError) else None
        error = kind(fields["message"], hint=fields["hint"], cause=Cause(fields["cause"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return error if isinstance(error, VastrunError) else None


@dataclass(frozen=True, kw_only=True)
class DriverRecord:
    """A background driver, alive or dead."""

    kind: str
    name: str
    pid: int
    folder: str
    """The folder in which it was started."""
    error: str = ""
    """Reason why it gave up; empty while it works, or after it was killed."""

    @property
    def target(self) -> Target:
        """The run or batch that it drives."""
        return Target("batch" if self.kind == "batch" else "run", self.name)


class DriverFolder:
    """The records and logs of the background drivers of this computer's user."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def log(self, target: Target) -> Path:
        """Return the file that the target's driver writes to."""
        return self._path / f"{target.kind}-{target.name}.log"

    def records(self) -> list[DriverRecord]:
        """Return the records; of one that its driver did not live to write whole, what its name says."""
        found = []
        for path in sorted(self._path.glob("*.json")):
            kind, _, name = path.stem.partition("-")
            with suppress(OSError):
                text = path.read_text(errors="replace")
                try:
                    found.append(read_json(DriverRecord, text))
                except RecordError:
                    found.append(DriverRecord(kind=kind, name=name, pid=0, folder=""))
        return found

    def find(self, target: Target) -> DriverRecord | None:
        """Return the target's record, or None."""
        return next((record for record in self.records() if record.target == target), None)

    def is_alive(self, target: Target) -> bool:
        """Return whether the target's driver is alive."""
        return is_locked(self._record(target))

    def remove(self, target: Target) -> None:
        """Remove the target's record: its work is done."""
        self._record(target).unlink(missing_ok=True)

    @contextmanager
    def claim(self, target: Target) -> Iterator[None]:
        """Lock the target's record, as its driver, and record the error that ends it.

        Raises HeldError if another driver is alive.
        """
        with self._record(target).open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise HeldError(f"{target.name} has a background driver already") from None
            record = DriverRecord(kind=target.kind, name=target.name, pid=os.getpid(), folder=str(Path.cwd()))
            _overwrite(file, record)
            try:
                yield
            except HeldError:  # another launcher does the work
                raise
            except BaseException as error:
                text = str(error) if isinstance(error, VastrunError) else f"{type(error).__name__}: {error}"
                with suppress(OSError):  # the log has it, too
                    _overwrite(file, replace(record, error=text))
                raise

    def start(
        self,
        target: Target,
        *,
        holds: Callable[[], bool],
        wait: Callable[[float], None],
        secrets: bytes = b"",
    ) -> int:
        """Start a driver, wait until it `holds` the target or has ended, and return its process id.

        It starts in the folder of its predecessor. `secrets`: what it gets to keep in its memory.
        Raises VastrunError if it ended with an error.
        """
        former, waited_s = self.find(target), 0.0
        folder = former.folder if former is not None and Path(former.folder).is_dir() else None
        try:
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._prune()
            with self.log(target).open("ab") as output:
                process = _spawn(target, secrets, output, output, BACKGROUND, folder=folder)
        except OSError as error:
            raise StorageError(
                f"cannot start a background driver for {target.name}: {error.strerror or error}",
                hint=target.resume_command,
            ) from error
        while process.poll() is None and waited_s < START_TIMEOUT_S:
            if self.is_alive(target) and holds():
                break
            wait(_POLL_S)
            waited_s += _POLL_S
        if process.returncode:
            record, log = self.find(target), self.log(target)
            reason = (record and record.error) or f"exit code {process.returncode}, see {log}"
            raise VastrunError(
                f"the background driver of {target.name} failed: {reason}", hint=target.resume_command
            )
        return process.pid

    def _record(self, target: Target) -> Path:
        return self._path / f"{target.kind}-{target.name}.json"

    def _prune(self) -> None:
        """Remove the oldest logs, except those of drivers with a record."""
        protected = {self.log(record.target).name for record in self.records()}
        logs = sorted(self._path.glob("*.log*"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in logs[MAX_LOGS:]:
            if path.name.removesuffix(".1") not in protected:
                path.unlink(missing_ok=True)


def _overwrite(file: IO[str], record: DriverRecord) -> None:
    file.seek(0)
    file.truncate()
    file.write(json.dumps(asdict(record)))
    file.flush()
