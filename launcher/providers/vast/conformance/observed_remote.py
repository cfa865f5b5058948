"""ObservedRemote: a shell on a machine that tells when the box was first seen to have its lease."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from launcher.core import Completed
from launcher.core.errors import HostKeyError
from launcher.gate.box_status import lease_of
from launcher.ports import ChecksIdentity, CountsNoise, Interruptible, Remote
from trainer.contract import layout


class ObservedRemote:
    """`Remote` says what each verb promises; what it can do besides is as the inner one's."""

    def __init__(
        self, remote: Remote, has_lease: Callable[[Remote], None], is_stranger: Callable[[], None]
    ) -> None:
        """`has_lease` is called once with the inner remote; `is_stranger` when another host key is shown."""
        self._remote = remote
        self._has_lease: Callable[[Remote], None] | None = has_lease
        self._is_stranger = is_stranger

    @property
    def identity(self) -> str:
        """How the machine is known."""
        return self._remote.identity if isinstance(self._remote, ChecksIdentity) else ""

    @property
    def left_out(self) -> Mapping[str, int]:
        """Lines that were not shown."""
        return self._remote.left_out if isinstance(self._remote, CountsNoise) else {}

    def heed(self, check: Callable[[], None]) -> None:
        """Have `check` called while the machine is waited for."""
        if isinstance(self._remote, Interruptible):
            self._remote.heed(check)

    def abort(self) -> None:
        """Break the connection, from another thread."""
        if isinstance(self._remote, Interruptible):
            self._remote.abort()

    def run(self, command: str, *, timeout_s: float) -> Completed:
        return self._remote.run(command, timeout_s=timeout_s)

    def put(self, local_path: str, path: str) -> None:
        self._remote.put(local_path, path)

    def write(self, path: str, content: bytes, *, mode: int = 0o600) -> None:
        self._remote.write(path, content, mode=mode)

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        try:
            content = self._remote.read(path, offset=offset, limit=limit)
        except HostKeyError:
            self._is_stranger()
            raise
        # A lease that cannot be armed is worth a look most of all.
        if path == layout.LEASE_STATE and self._has_lease and lease_of(content) in ("armed", "proving"):
            look, self._has_lease = self._has_lease, None
            look(self._remote)
        return content

    def close(self) -> None:
        self._remote.close()
