"""Background drivers: launchers that continue a run or a batch after its command has ended.

Each has a record and a log in the state folder. It keeps its record locked while it lives, and removes it
once its work is done. A record without a lock is from a driver that died: the next command replaces it.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO

from vastrun.contract.records import RecordError, read_json
from vastrun.launcher.api.drivers import Target, handed_over
from vastrun.launcher.api.runs import attempts_from
from vastrun.launcher.commands.chains import is_retry_missing
from vastrun.launcher.core import Phase
from vastrun.launcher.core.errors import HeldError, StorageError, UsageError, VastrunError
from vastrun.launcher.ledger.presence import is_locked
from vastrun.launcher.ports import Ledger

START_TIMEOUT_S = 20.0
"""Longest wait for a new driver to hold its run or batch, in seconds."""
MAX_LOGS = 50
"""Maximum number of logs; the oldest are removed."""
_POLL_S = 0.1
_MODULE = "vastrun.launcher.api.background_driver"


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
    def claim(self, target: Target) -> Iterator[Claim]:
        """Lock the target's record, as its driver. Raises HeldError if another driver is alive."""
        with self._record(target).open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise HeldError(f"{target.name} has a background driver already") from None
            record = DriverRecord(kind=target.kind, name=target.name, pid=os.getpid(), folder=str(Path.cwd()))
            claim = Claim(file, record)
            claim.write()
            yield claim

    def start(
        self,
        target: Target,
        *,
        holds: Callable[[], bool],
        wait: Callable[[float], None],
        secrets: bytes = b"",
    ) -> int:
        """Start a driver, wait until it `holds` the target or has ended, and return its process id.

        `secrets`: what it gets to keep in its memory.
        Raises VastrunError if it ended with an error.
        """
        process = self._spawn(target, secrets)
        waited_s = 0.0
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

    def _spawn(self, target: Target, secrets: bytes) -> subprocess.Popen[bytes]:
        """Start the process in a new session, without a terminal, in the folder of its predecessor."""
        former = self.find(target)
        folder = former.folder if former is not None and Path(former.folder).is_dir() else None
        try:
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._prune()
            with self.log(target).open("ab") as output, handed_over(secrets) as stdin:
                return subprocess.Popen(
                    # -P: files in the current folder must not shadow vastrun's modules.
                    [sys.executable, "-P", "-m", _MODULE, target.kind, target.name],
                    stdin=stdin,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    cwd=folder,
                )
        except OSError as error:
            raise StorageError(
                f"cannot start a background driver for {target.name}: {error.strerror or error}",
                hint=target.resume_command,
            ) from error

    def _prune(self) -> None:
        """Remove the oldest logs, except those of drivers with a record."""
        protected = {self.log(record.target).name for record in self.records()}
        logs = sorted(self._path.glob("*.log*"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in logs[MAX_LOGS:]:
            if path.name.removesuffix(".1") not in protected:
                path.unlink(missing_ok=True)


class Claim:
    """The locked record of a running driver."""

    def __init__(self, file: IO[str], record: DriverRecord) -> None:
        self._file, self._record = file, record

    def write(self) -> None:
        """Overwrite the record in its file."""
        self._file.seek(0)
        self._file.truncate()
        self._file.write(json.dumps(asdict(self._record)))
        self._file.flush()

    def fail(self, error: BaseException) -> None:
        """Record why the driver gives up."""
        text = str(error) if isinstance(error, VastrunError) else f"{type(error).__name__}: {error}"
        self._record = replace(self._record, error=text)
        with suppress(OSError):  # the log has it, too
            self.write()


def find_open_target(ledger: Ledger, target: Target, now: float) -> Target | None:
    """Return the target if it is open, for a run its newest attempt; None if nothing is left to drive."""
    try:
        if target.kind == "batch":
            ledger.batches.get(target.name)
            return target
        run = attempts_from(ledger, ledger.get(target.name))[-1]
    except UsageError:  # its row is gone
        return None
    nodes = ledger.runs(leader=run.id)
    is_open = any(one.phase is not Phase.ENDED for one in (run, *nodes)) or is_retry_missing(ledger, run, now)
    return Target("run", run.id) if is_open else None


def is_driven(ledger: Ledger, target: Target) -> bool:
    """Return whether a launcher drives the target now."""
    if target.kind == "batch":
        return ledger.batches.is_driven(target.name)
    return ledger.driver(attempts_from(ledger, ledger.get(target.name))[-1].id) is not None
