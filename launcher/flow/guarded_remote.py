"""Remote that stops sending requests once the user, time or money ends the run."""

from __future__ import annotations

from collections.abc import Callable

from vastrun.launcher.core import CommandResult
from vastrun.launcher.ports import Interruptible, Remote


class GuardedRemote:
    """A Remote that calls `check` before each request and during long ones; what `check` raises ends the
    request."""

    def __init__(self, remote: Remote, check: Callable[[], None]) -> None:
        self._remote, self._check = remote, check
        self.connection = remote
        """The real remote, for optional protocols: `ChecksIdentity` and `CountsNoise`."""
        if isinstance(remote, Interruptible):
            remote.set_interrupt_check(check)

    def raise_if_stopped(self) -> None:
        """Raise RunStopped when the user, time or money ends the exchange."""
        self._check()

    def abort(self) -> None:
        """Break the connection, from another thread, where the remote can be interrupted."""
        if isinstance(self.connection, Interruptible):
            self.connection.abort()

    def run(self, command: str, *, timeout_s: float) -> CommandResult:
        self._check()
        return self._remote.run(command, timeout_s=timeout_s)

    def put(self, local_path: str, path: str) -> None:
        self._check()
        self._remote.put(local_path, path)

    def write(self, path: str, content: bytes, *, mode: int = 0o600) -> None:
        self._check()
        self._remote.write(path, content, mode=mode)

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        self._check()
        return self._remote.read(path, offset=offset, limit=limit)

    def close(self) -> None:
        self._remote.close()
