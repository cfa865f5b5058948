"""SshRemote: a shell in the folder of a box, over SSH."""

from __future__ import annotations

import contextlib
import io
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, TypeVar

from vastrun.launcher.core import CommandResult, LocalProgram, SshAccess, errors
from vastrun.launcher.ssh.client_options import login_argv, ssh_access, tunnel_argv
from vastrun.launcher.ssh.connection import Connection, Login, script
from vastrun.launcher.ssh.keys import Address
from vastrun.launcher.ssh.session import ConnectionLostError, SshSession
from vastrun.launcher.ssh.transfers import Download, Following, Upload

_T = TypeVar("_T")

_ASK_AGAIN_S = 1.0
"""Seconds for which only new bytes of a followed file are read, as they arrive."""


class SshRemote:
    """The Remote port over SSH. Connects when a method needs it."""

    def __init__(
        self, login: Login, *, root: str, env: Mapping[str, str], is_gone: Callable[[], bool]
    ) -> None:
        """`root`: absolute path of the box's folder. `env`: variables of commands, added to the box's own; no
        secrets. `is_gone`: asks the provider about the machine when it does not answer.
        """
        self._login = login
        self._connection = Connection(login)
        self._root = root
        self._env = [f"{name}={value}" for name, value in env.items()]
        self._is_gone = is_gone
        self._download = Download(self._start)
        self._watched = ""
        """Path of the file that `has_grown` was asked about."""
        self._last_read: tuple[int, int] | None = None
        """Offset and end of its last read."""
        self._asked_at = 0.0
        """Monotonic time at which the machine was last asked for a part of it."""
        self._following: Following | None = None
        self._can_follow = True

    @property
    def auth_failures(self) -> int:
        """Number of times an address of this machine rejected the key."""
        return self._connection.auth_failures

    @property
    def identity(self) -> str:
        return self._connection.identity

    def set_interrupt_check(self, check: Callable[[], None]) -> None:
        self._connection.check = check

    def abort(self) -> None:
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
                # If this fails, the box's own timeout does it a second later.
                try:
                    killer = self._start(*script("kill"), str(session.pid()))
                    killer.wait(5.0)
                    killer.close()
                except (errors.UnreachableError, TimeoutError):
                    self.close()
                raise errors.UnreachableError(f"no answer within {timeout_s:g} s: {command}") from error
            finally:
                session.close()
            return CommandResult(exit_code=exit_code, stdout=session.output(), stderr=session.errors())

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
        self.run("true", timeout_s=30.0)
        assert self._connection.address is not None
        return self._connection.address

    def put(self, local_path: str, path: str) -> None:
        """Upload the file atomically; the box compares its checksum."""
        try:
            with Path(local_path).open("rb") as source:
                self._store(source, path, 0o600)
        except OSError as error:
            raise errors.ProviderError(f"cannot read {local_path}: {error.strerror}") from error

    def write(self, path: str, content: bytes, *, mode: int = 0o600) -> None:
        self._store(io.BytesIO(content), path, mode)

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        followed = self._read_followed(path, offset, limit)
        if followed is not None:
            content = followed
        else:
            with self._map_gone():
                content = self._retry(lambda: self._download.read(path, offset, limit))
            if path == self._watched:
                self._asked_at = time.monotonic()
        if path == self._watched:
            self._last_read = (offset, offset + len(content))
        return content

    def has_grown(self, path: str) -> bool | None:
        if path != self._watched:
            self._watched, self._last_read = path, None
        if self._last_read is None or self._last_read[1] == 0:  # `tail` follows no file that is not there
            return None
        try:
            following = self._follow(self._last_read[0])
            return None if following is None else following.end() > self._last_read[1]
        except (errors.UnreachableError, errors.BoxError, TimeoutError):
            self._stop_following()
            return None

    def _follow(self, offset: int) -> Following | None:
        """Follow the watched file from its last read on; None once that has failed."""
        if self._can_follow and self._following is None:
            self._can_follow = False  # until it has begun
            words = (*script("follow"), self._watched, str(offset))
            session = self._connection.start_beside(self._root, words, self._env)
            if session is not None and session.pid() is not None:
                self._following, self._can_follow = Following(session, self._watched, offset), True
        following = self._following
        return following if following is not None and following.path == self._watched else None

    def _read_followed(self, path: str, offset: int, limit: int) -> bytes | None:
        """Return new bytes that have arrived; None: the machine must be asked.

        It is, once in a while: the file may have been replaced by another one.
        """
        following, last_read = self._following, self._last_read
        if following is None or last_read is None or not path == following.path == self._watched:
            return None
        if time.monotonic() - self._asked_at >= _ASK_AGAIN_S:
            return None
        try:
            has_news = following.end() > last_read[1]
        except (errors.UnreachableError, errors.BoxError):
            self._stop_following()
            return None
        return following.read(offset, limit) if has_news else None

    def _stop_following(self) -> None:
        """Ask for each part of the file from now on: a machine that cannot be followed is not asked again."""
        self._can_follow = False
        if self._following is not None:
            self._following.close()
            self._following = None

    def close(self) -> None:
        self._download.close()
        if self._following is not None:
            self._stop_following()
        self._connection.drop()

    def _store(self, source: BinaryIO, path: str, mode: int) -> None:
        upload = Upload(source, path, mode)
        with self._map_gone():
            for _ in range(2):
                if self._retry(lambda: upload.run(self._start)):
                    return
        raise errors.ProviderError(f"{path} arrived damaged, twice")

    def _start(self, *argv: str) -> SshSession:
        """Start a command. Raises NoBoxError when the box's folder does not exist."""
        session = self._connection.start(self._root, argv, self._env)
        try:
            found = session.pid() is not None
        except TimeoutError as error:
            raise ConnectionLostError("the machine does not answer") from error
        if not found:
            session.close()
            raise errors.NoBoxError(f"folder {self._root} does not exist on the machine")
        return session

    def _retry(self, verb: Callable[[], _T]) -> _T:
        """Call the verb; retry on a new connection when the connection breaks."""
        for _ in range(2):
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
        except errors.UnreachableError as error:
            if isinstance(error, ConnectionLostError):
                self.close()
            is_gone = False
            with contextlib.suppress(errors.VastrunError):  # the provider cannot be reached
                is_gone = self._is_gone()
            if is_gone:
                raise errors.GoneError(f"the provider no longer has this machine; {error}") from error
            raise
