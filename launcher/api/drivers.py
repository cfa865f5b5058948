"""Drivers: a separate launcher process for each run or batch that a Python program starts.

The program may be a notebook: its kernel may be closed while a machine is rented, its user may interrupt a
cell at any moment, and its code may run in any thread. A thread would end with the kernel, get Ctrl-C as an
exception anywhere, and could not handle signals. So a process in a new session does what `vastrun resume`
does. If it is killed, the lease still limits the run, and another launcher may take over.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any, Literal

from vastrun.launcher.core import Cause, errors
from vastrun.launcher.core.errors import JobFileError, VastrunError
from vastrun.launcher.gate.text import printable

_MODULE = "vastrun.launcher.api.driver_process"
_STDIN = 0
_MAX_PIPE_BYTES = 1 << 16
"""Bytes that a pipe takes at once, on Linux and on a Mac."""
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


class ProcessDriver:
    """A launcher in a separate process, which outlives this one and gets no Ctrl-C."""

    def __init__(self, target: Target, secrets: bytes = b"") -> None:
        """Start the process, which keeps `secrets` in memory. Raises VastrunError if this computer cannot."""
        self._target = target
        try:
            # A file without a name needs no clean-up; an unread pipe would block the launcher.
            self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as this
            with handed_over(secrets) as stdin:
                self._process = subprocess.Popen(
                    # -P: files in the program's folder must not shadow vastrun's modules.
                    [sys.executable, "-P", "-m", _MODULE, target.kind, target.name],
                    stdin=stdin,
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
