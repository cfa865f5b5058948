"""Drivers: a launcher of its own for each run or batch that a program starts, beside that program.

The program may be a notebook: its kernel is closed while a machine is rented, its user interrupts a cell at
any moment, its code may run in any thread. A thread would end with the kernel, get Ctrl-C as an exception
anywhere, and could handle no signal. So what drives is a process in a session of its own, and does what
`vastrun resume` does. When it is killed, the lease holds and another launcher may take over, as always.
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

_MODULE = "vastrun.launcher.api.driving"
_MOST_BYTES = 1 << 16
"""Of what a driver said last."""


@dataclass(frozen=True)
class Target:
    """What is driven."""

    kind: Literal["run", "batch"]
    name: str
    """A run's id, or a batch's name."""

    @property
    def resume_command(self) -> str:
        """Return what continues it from a terminal."""
        return f"vastrun {'batch ' if self.kind == 'batch' else ''}resume {self.name}"


class DriverProcess(Protocol):
    """A launcher at work."""

    def is_alive(self) -> bool:
        """Return whether it still drives."""
        ...

    def error(self) -> VastrunError | None:
        """Return why it ended before its work was done; None when it was. Call it after the end."""
        ...


StartDriver = Callable[[Target], DriverProcess]


class ProcessDriver:
    """A launcher in a process of its own, which outlives this one and hears no Ctrl-C."""

    def __init__(self, target: Target) -> None:
        """Start it. Raises VastrunError when this computer cannot."""
        self._target = target
        try:
            # Without a name: nobody has to delete it, and nobody who stops reading can stop the launcher.
            self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as this
            self._process = subprocess.Popen(
                # -P: what lies in the program's folder must not stand in the way of our modules.
                [sys.executable, "-P", "-m", _MODULE, target.kind, target.name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                start_new_session=True,
            )
        except OSError as error:
            raise VastrunError(
                f"cannot start a launcher for {target.name}: {error.strerror or error}",
                hint=target.resume_command,
            ) from error

    def is_alive(self) -> bool:
        """Return whether it still drives."""
        return self._process.poll() is None

    def error(self) -> VastrunError | None:
        """Return why it ended before its work was done; None when it was."""
        code = self._process.wait()
        if code == 0:
            return None
        self._said.seek(0)
        lines = self._said.read()[-_MOST_BYTES:].decode("utf-8", "replace").strip().splitlines()
        last = lines[-1] if lines else ""
        return error_in(last) or VastrunError(
            f"the launcher of {self._target.name} ended with exit code {code}{last and f': {last}'}",
            hint=self._target.resume_command,
        )


def error_line(error: VastrunError) -> str:
    """Return the error as a line for another process."""
    faults = list(error.faults) if isinstance(error, JobFileError) else None
    fields = {"message": printable(str(error)), "hint": error.hint, "cause": error.cause, "faults": faults}
    return json.dumps({"error": type(error).__name__, **fields})


def error_in(line: str) -> VastrunError | None:
    """Return the error that `error_line` wrote; None where it did not write the line."""
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
