"""Drivers: a separate launcher process for each run or batch that a Python program starts.

The program may be a notebook: its kernel may be closed while a machine is rented, its user may interrupt a
cell at any moment, and its code may run in any thread. A thread would end with the kernel, get Ctrl-C as an
exception anywhere, and could not handle signals. So a process in a new session does what `vastrun resume`
does. If it is killed, the lease still limits the run, and another launcher may take over.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, Literal, Protocol

from vastrun.launcher.core import Cause, errors
from vastrun.launcher.core.errors import JobFileError, VastrunError
from vastrun.launcher.gate.text import printable

_MODULE = "vastrun.launcher.api.driver_process"
_MAX_TAIL_BYTES = 1 << 16
"""Bytes at the end of a driver's stderr that are read for its error."""


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


class DriverProcess(Protocol):
    """A launcher process."""

    def is_alive(self) -> bool:
        """Return whether the process is running."""
        ...

    def error(self) -> VastrunError | None:
        """Return the error that ended it early; None if its work was done. Call it after the end."""
        ...


StartDriver = Callable[[Target], DriverProcess]


class ProcessDriver:
    """A launcher in a separate process, which outlives this one and gets no Ctrl-C."""

    def __init__(self, target: Target) -> None:
        """Start the process. Raises VastrunError if this computer cannot."""
        self._target = target
        try:
            # A file without a name needs no clean-up; an unread pipe would block the launcher.
            self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as this
            self._process = subprocess.Popen(
                # -P: files in the program's folder must not shadow vastrun's modules.
                [sys.executable, "-P", "-m", _MODULE, target.kind, target.name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                start_new_session=True,
            )
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
        lines = self._stderr.read()[-_MAX_TAIL_BYTES:].decode("utf-8", "replace").strip().splitlines()
        last = lines[-1] if lines else ""
        return error_in(last) or VastrunError(
            f"the launcher of {self._target.name} ended with exit code {code}{last and f': {last}'}",
            hint=self._target.resume_command,
        )


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
