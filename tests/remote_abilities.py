"""A remote with all abilities, one with none, and what `isinstance` sees of a remote on every Python."""

import inspect
from collections.abc import Callable, Collection, Set

from vastrun.launcher.core import CommandResult, LocalProgram, SshAccess
from vastrun.launcher.ports import REMOTE_ABILITIES


class BareRemote:
    """The verbs of a remote alone. Its box is empty."""

    def run(self, command: str, *, timeout_s: float) -> CommandResult:
        return CommandResult(exit_code=0, stdout="", stderr="")

    def put(self, local_path: str, path: str) -> None: ...

    def write(self, path: str, content: bytes, *, mode: int = 0o600) -> None: ...

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        return b""

    def close(self) -> None: ...


class AbleRemote(BareRemote):
    """All that an SSH connection can do besides."""

    identity = "known"

    def __init__(self) -> None:
        self.aborted = 0

    def set_interrupt_check(self, check: Callable[[], None]) -> None:
        check()

    def abort(self) -> None:
        self.aborted += 1

    def terminal(self, command: str | None = None) -> LocalProgram:
        return LocalProgram(argv=("true",))

    def tunnel(self, port: int, local_port: int) -> LocalProgram | None:
        return None

    def ssh_access(self) -> SshAccess:
        return SshAccess(host="here", port=22, user="me", key_path="/k", known_hosts_path="/h", folder="box")

    def has_grown(self, path: str) -> bool | None:
        return None


def abilities_of(remote: object) -> Set[type]:
    """Return the abilities that are found without `__getattr__`, as `isinstance` looks since Python 3.12."""
    return {ability for ability in REMOTE_ABILITIES if all(_has(remote, name) for name in _names(ability))}


def _names(ability: type) -> Collection[str]:
    return [name for name in vars(ability) if not name.startswith("_")]


def _has(remote: object, name: str) -> bool:
    return inspect.getattr_static(remote, name, None) is not None
