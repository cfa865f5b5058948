"""SshRemote: a shell in the folder of a box, over SSH."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, TypeVar

from vastrun.launcher.core import Completed, LocalProgram
from vastrun.launcher.core.errors import GoneError, NoBoxError, ProviderError, UnreachableError, VastrunError
from vastrun.launcher.ssh.connection import Connection, Login, script
from vastrun.launcher.ssh.hosts import Address
from vastrun.launcher.ssh.noise import NoiseFilter
from vastrun.launcher.ssh.session import BrokenError, SshSession
from vastrun.launcher.ssh.terminal import login_argv, tunnel_argv
from vastrun.launcher.ssh.transfers import Download, Upload

_T = TypeVar("_T")

_TRIES = 3
_KILL_S = 5.0
_TRUE_S = 30.0


class SshRemote:
    """`Remote` says what each verb promises. Connects when it must."""

    def __init__(
        self,
        login: Login,
        *,
        root: str,
        env: Mapping[str, str],
        is_gone: Callable[[], bool],
        noise: NoiseFilter,
    ) -> None:
        """`root`: the box's folder, absolute. `env`: what commands see besides the box's own environment; no
        secrets. `is_gone`: asks the provider, when nobody answers. `noise`: counts what is not shown.
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
        """How often an address of this machine did not accept our key."""
        return self._connection.auth_failures

    @property
    def identity(self) -> str:
        """How the machine is known to be ours, in words; empty before it was reached."""
        return self._connection.identity

    @property
    def left_out(self) -> Mapping[str, int]:
        """Lines of known noise that were not shown, by kind."""
        return self._noise.counts

    def heed(self, check: Callable[[], None]) -> None:
        """Have `check` called every second while the machine is waited for."""
        self._connection.check = check

    def abort(self) -> None:
        """Break the connection, from another thread: whatever waits for the machine raises soon."""
        self._connection.abort()

    def run(self, command: str, *, timeout_s: float) -> Completed:
        """Run the command to its end. What is left of it after `timeout_s` is killed."""
        limit = str(math.ceil(timeout_s) + 1)
        with self._reaching():
            # Two limits: ours, and a second later that of the machine, where a dropped line would leave the
            # command.
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
            return Completed(exit_code=exit_code, stdout=session.output(), stderr=stderr)

    def terminal(self, command: str | None = None) -> LocalProgram:
        """Return OpenSSH's client, which goes where this shell has just been."""
        return LocalProgram(argv=login_argv(self._login, self._reached(), self._root, command))

    def tunnel(self, port: int, local_port: int) -> LocalProgram | None:
        """Return OpenSSH's client as a tunnel from this computer to the box."""
        return LocalProgram(argv=tunnel_argv(self._login, self._reached(), port, local_port))

    def _reached(self) -> Address:
        """The address that answers now, its host key checked and noted."""
        self.run("true", timeout_s=_TRUE_S)
        assert self._connection.address is not None
        return self._connection.address

    def put(self, local_path: str, path: str) -> None:
        """Copy the file to the box, whole; its checksum is compared there."""
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
        with self._reaching():
            return self._again(lambda: self._download.read(path, offset, limit))

    def close(self) -> None:
        """Close the connection; whatever runs on the box goes on."""
        self._download.close()
        self._connection.drop()

    def _store(self, source: BinaryIO, path: str, mode: int) -> None:
        upload = Upload(source, path, mode)
        with self._reaching():
            for _ in range(2):
                if self._again(lambda: upload.run(self._start)):
                    return
        raise ProviderError(f"{path} arrived damaged, twice")

    def _start(self, *argv: str) -> SshSession:
        """The command, begun. Raises NoBoxError when the box's folder is not there."""
        session = self._connection.start(self._root, argv, self._env)
        try:
            found = session.pid() is not None
        except TimeoutError as error:
            raise BrokenError("the machine does not answer") from error
        self._noise.strip(session.greeting())
        if not found:
            session.close()
            raise NoBoxError(f"the machine has no folder {self._root}")
        return session

    def _kill(self, session: SshSession) -> None:
        """The command and all that it started are dead; else the box does it, a second later."""
        try:
            killer = self._start(*script("kill"), str(session.pid()))
            killer.wait(_KILL_S)
            killer.close()
        except (UnreachableError, TimeoutError):
            self.close()

    def _again(self, verb: Callable[[], _T]) -> _T:
        """The verb, tried again on a new connection when one broke in the middle of it."""
        for _ in range(_TRIES - 1):
            try:
                return verb()
            except BrokenError:
                self.close()
        return verb()

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        """When nobody answers, the provider knows whether there is still a machine."""
        try:
            yield
        except UnreachableError as error:
            if isinstance(error, BrokenError):
                self.close()
            if self._is_known_gone():
                raise GoneError(f"the provider no longer has this machine; {error}") from error
            raise

    def _is_known_gone(self) -> bool:
        """False also when the provider cannot tell."""
        try:
            return self._is_gone()
        except VastrunError:
            return False
