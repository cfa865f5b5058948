"""SshRemote: a shell in the folder of a box, over SSH."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, TypeVar

from vastrun.launcher.core import CommandResult, LocalProgram, SshAccess
from vastrun.launcher.core.errors import GoneError, NoBoxError, ProviderError, UnreachableError, VastrunError
from vastrun.launcher.ssh.client_options import login_argv, ssh_access, tunnel_argv
from vastrun.launcher.ssh.connection import Connection, Login, script
from vastrun.launcher.ssh.keys import Address
from vastrun.launcher.ssh.session import ConnectionLostError, NoiseFilter, SshSession
from vastrun.launcher.ssh.transfers import Download, Upload

_T = TypeVar("_T")

_MAX_TRIES = 3
_KILL_TIMEOUT_S = 5.0
_REACH_TIMEOUT_S = 30.0


class SshRemote:
    """The Remote port over SSH. Connects when a method needs it."""

    def __init__(
        self,
        login: Login,
        *,
        root: str,
        env: Mapping[str, str],
        is_gone: Callable[[], bool],
        noise: NoiseFilter,
    ) -> None:
        """`root`: absolute path of the box's folder. `env`: variables of commands, added to the box's own; no
        secrets. `is_gone`: asks the provider about the machine when it does not answer. `noise`: counts
        dropped lines.
        """
        self._login = login
        self._connection = Connection(login)
        self._root = root
        self._env = [f"{name}={value}" for name, value in env.items()]
        self._is_gone = is_gone
        self._noise = noise
        self._download = Download(self._start)

    @property
    def auth_failures(self) -> int:
        """Number of times an address of this machine rejected the key."""
        return self._connection.auth_failures

    @property
    def identity(self) -> str:
        """Method by which the machine was identified, for display; empty before the first connection."""
        return self._connection.identity

    @property
    def left_out(self) -> Mapping[str, int]:
        """Number of dropped lines of known noise, by kind."""
        return self._noise.counts

    def set_interrupt_check(self, check: Callable[[], None]) -> None:
        """Call `check` every second during waits for the machine."""
        self._connection.check = check

    def abort(self) -> None:
        """Break the connection from another thread: calls that wait for the machine raise soon."""
        self._connection.abort()

    def run(self, command: str, *, timeout_s: float) -> CommandResult:
        """Run the command to its end; kill it after `timeout_s`."""
        limit = str(math.ceil(timeout_s) + 1)
        with self._map_gone():
            # Two limits: the launcher's, and a second later the machine's, since a lost connection would
            # leave the command running.
            session = self._start("timeout", "-s", "KILL", limit, *script("command"), command)
            session.end_input()
            try:
                exit_code = session.wait(timeout_s)
            except TimeoutError as error:
                self._kill(session)
                raise UnreachableError(f"no answer within {timeout_s:g} s: {command}") from error
            finally:
                session.close()
            stderr = self._noise.strip(session.errors())
            return CommandResult(exit_code=exit_code, stdout=session.output(), stderr=stderr)

    def terminal(self, command: str | None = None) -> LocalProgram:
        """Return OpenSSH's client for the address of this connection."""
        return LocalProgram(argv=login_argv(self._login, self._reach(), self._root, command))

    def tunnel(self, port: int, local_port: int) -> LocalProgram | None:
        """Return OpenSSH's client as a tunnel from this computer to the box."""
        return LocalProgram(argv=tunnel_argv(self._login, self._reach(), port, local_port))

    def ssh_access(self) -> SshAccess:
        """Return the login for OpenSSH's client at the address of this connection."""
        return ssh_access(self._login, self._reach(), self._root)

    def _reach(self) -> Address:
        """Connect, and return the address that answered; its host key is checked and stored."""
        self.run("true", timeout_s=_REACH_TIMEOUT_S)
        assert self._connection.address is not None
        return self._connection.address

    def put(self, local_path: str, path: str) -> None:
        """Upload the file atomically; the box compares its checksum."""
        try:
            with Path(local_path).open("rb") as source:
                self._store(source, path, 0o600)
        except OSError as error:
            raise ProviderError(f"cannot read {local_path}: {error.strerror}") from error

    def write(self, path: str, content: bytes, *, mode: int = 0o600) -> None:
        """Write the bytes to a file on the box, as `put` does."""
        self._store(io.BytesIO(content), path, mode)

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        """Read up to `limit` bytes from `offset`."""
        with self._map_gone():
            return self._retry(lambda: self._download.read(path, offset, limit))

    def close(self) -> None:
        """Close the connection; programs on the box keep running."""
        self._download.close()
        self._connection.drop()

    def _store(self, source: BinaryIO, path: str, mode: int) -> None:
        upload = Upload(source, path, mode)
        with self._map_gone():
            for _ in range(2):
                if self._retry(lambda: upload.run(self._start)):
                    return
        raise ProviderError(f"{path} arrived damaged, twice")

    def _start(self, *argv: str) -> SshSession:
        """Start a command. Raises NoBoxError when the box's folder does not exist."""
        session = self._connection.start(self._root, argv, self._env)
        try:
            found = session.pid() is not None
        except TimeoutError as error:
            raise ConnectionLostError("the machine does not answer") from error
        self._noise.strip(session.greeting())
        if not found:
            session.close()
            raise NoBoxError(f"folder {self._root} does not exist on the machine")
        return session

    def _kill(self, session: SshSession) -> None:
        """Kill the command and its children; if that fails, the box's own timeout does it a second later."""
        try:
            killer = self._start(*script("kill"), str(session.pid()))
            killer.wait(_KILL_TIMEOUT_S)
            killer.close()
        except (UnreachableError, TimeoutError):
            self.close()

    def _retry(self, verb: Callable[[], _T]) -> _T:
        """Call the verb; retry on a new connection when the connection breaks."""
        for _ in range(_MAX_TRIES - 1):
            try:
                return verb()
            except ConnectionLostError:
                self.close()
        return verb()

    @contextlib.contextmanager
    def _map_gone(self) -> Iterator[None]:
        """Raise GoneError instead of UnreachableError when the provider no longer has the machine."""
        try:
            yield
        except UnreachableError as error:
            if isinstance(error, ConnectionLostError):
                self.close()
            if self._provider_lost_it():
                raise GoneError(f"the provider no longer has this machine; {error}") from error
            raise

    def _provider_lost_it(self) -> bool:
        """Return whether the provider reports the machine gone; False when the provider cannot be reached."""
        try:
            return self._is_gone()
        except VastrunError:
            return False
