"""Connection: one SSH connection to the first address that answers, reopened when it breaks."""

from __future__ import annotations

import contextlib
import functools
import logging
import secrets
import shlex
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError, wait
from contextlib import suppress
from dataclasses import dataclass
from errno import EINVAL
from pathlib import Path
from typing import TYPE_CHECKING

from vastrun.launcher.core.errors import HostKeyError, StorageError, UnreachableError
from vastrun.launcher.ssh.keys import Address, KeyPair, KnownHosts
from vastrun.launcher.ssh.session import Check, ConnectionLostError, SshSession

if TYPE_CHECKING:
    from paramiko import Channel, PKey, Transport

_NULL_HANDLER = logging.NullHandler()
"""Without a handler, paramiko prints errors of broken connections to the terminal."""


class KeyRejectedError(UnreachableError):
    """The machine answers and rejects the run's key."""


@dataclass(frozen=True, kw_only=True)
class ConnectTimeouts:
    """Limits of the wait for a silent machine."""

    connect_s: float = 8.0
    """Seconds for each step of a login, at each address."""
    stall_s: float = 20.0
    """Seconds without any progress on a connection."""


@dataclass(frozen=True, kw_only=True)
class Login:
    """Everything that is needed to log in to one machine."""

    addresses: Sequence[Address]
    """Host and port: direct, proxy. Addresses that answered before are tried first."""
    key: KeyPair
    hosts: KnownHosts
    user: str = "root"
    timeouts: ConnectTimeouts = ConnectTimeouts()
    on_key: Callable[[bool], None] = lambda _: None
    """Called with True when the machine accepts the key, and with False when one address rejects it and no
    other accepts it.

    An error that it raises replaces the error of the connection.
    """


class Connection:
    """Starts commands on the machine. Raises UnreachableError with the failure of each address."""

    def __init__(self, login: Login) -> None:
        self._login = login
        self._transport: Transport | None = None
        self._pending: PendingSocket | Transport | None = None
        """The connection that is being opened: its host key is unchecked, or its login incomplete."""
        self.address: Address | None = None
        """Address that answered last."""
        self.auth_failures = 0
        """Number of times an address rejected the key."""
        self.check: Check = lambda: None
        """Called every second during a wait for the machine; an error that it raises ends the wait."""

    @property
    def identity(self) -> str:
        """Method by which the machine was identified, for display."""
        return self._login.hosts.identity

    def start(self, box: str, argv: Sequence[str], env: Sequence[str] = ()) -> SshSession:
        """Start the command in the folder `box`. `env`: words `NAME=value`, without secrets."""
        token = secrets.token_hex(8)
        words = [*script("session"), token, box, *env, "--", *argv]
        channel = self._channel(f"exec {shlex.join(words)}")
        return SshSession(channel, token, stall_s=self._login.timeouts.stall_s, check=self.check)

    def start_beside(self, box: str, argv: Sequence[str], env: Sequence[str] = ()) -> SshSession | None:
        """Start another command; return None when there is no connection, or the machine refuses.

        Unlike `start`, it never connects again: that would break the sessions of the other commands.
        """
        if self._transport is None or not self._transport.is_active():
            return None
        token = secrets.token_hex(8)
        words = [*script("session"), token, box, *env, "--", *argv]
        try:
            channel = self._execute(self._transport, f"exec {shlex.join(words)}")
        except ConnectionLostError:
            return None
        return SshSession(channel, token, stall_s=self._login.timeouts.stall_s, check=self.check)

    def abort(self) -> None:
        """Break the connection from another thread: calls that wait for the machine raise soon."""
        for one in (self._pending, self._transport):
            if one is not None:
                one.close()

    def drop(self) -> None:
        """Close the connection; the next command opens a new one."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def _channel(self, command: str) -> Channel:
        """Open a channel for the command; reconnect if the connection broke before the command was sent."""
        transport = self._transport
        if transport is not None and transport.is_active():
            try:
                return self._execute(transport, command)
            except ConnectionLostError:
                self.drop()
        self._transport = self._dial_any()
        return self._execute(self._transport, command)

    def _dial_any(self) -> Transport:
        faults: list[tuple[Address, UnreachableError]] = []
        key = _load_key(self._login.key)
        known = self._login.hosts.knows
        for address in sorted(self._login.addresses, key=lambda a: (a != self.address, not known(a))):
            self.check()  # each address may take a while
            try:
                transport = self._dial(address, key)
            except UnreachableError as error:
                faults.append((address, error))
                self.auth_failures += isinstance(error, KeyRejectedError)
            else:
                self.address = address
                self._login.on_key(True)
                return transport
        if any(isinstance(error, KeyRejectedError) for _, error in faults):
            self._login.on_key(False)
        raise _summarize(faults)

    def _dial(self, address: Address, key: PKey) -> Transport:
        import paramiko

        logging.getLogger("paramiko").addHandler(_NULL_HANDLER)
        limit_s = self._login.timeouts.connect_s
        with _mapped_errors(limit_s), contextlib.ExitStack() as until_open:
            self._pending = pending = PendingSocket(address, limit_s)
            transport = paramiko.Transport(pending.wait(self.check))
            # Also on Ctrl-C: otherwise the socket and the transport's thread would leak.
            until_open.callback(transport.close)
            self._pending = transport
            transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = limit_s
            transport.start_client(timeout=2 * limit_s)
            # The host key is checked before the login: an impostor must not learn the public key.
            self._login.hosts.check(address, transport.get_remote_server_key())
            self._authenticate(transport, key)
            transport.set_keepalive(10)
            until_open.pop_all()
        return transport

    def _authenticate(self, transport: Transport, key: PKey) -> None:
        """Log in. Raises KeyRejectedError only for a rejection; paramiko's error may be a lost connection."""
        import paramiko

        try:
            transport.auth_publickey(self._login.user, key)
        except paramiko.AuthenticationException as error:
            if transport.is_active() and "timeout" not in str(error):
                raise KeyRejectedError("rejects the run's SSH key") from error
            raise UnreachableError("disconnected during authentication") from error

    def _execute(self, transport: Transport, command: str) -> Channel:
        """Run the command in a new channel. Raises ConnectionLostError when the machine did not accept it."""
        import paramiko

        limit_s = self._login.timeouts.stall_s
        watchdog = threading.Timer(limit_s, transport.close)  # paramiko itself would wait for ever
        watchdog.start()
        try:
            channel = transport.open_session(timeout=limit_s)
            channel.exec_command(command)
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise ConnectionLostError("the connection broke") from error
        finally:
            watchdog.cancel()
        return channel


@functools.cache
def script(name: str) -> tuple[str, ...]:
    """Return the argv of one of vastrun's scripts on the machine; append the script's arguments.

    Without --norc, bash started by sshd assumes a remote login and reads .bashrc again.
    """
    text = (Path(__file__).parent / "scripts" / f"{name}.sh").read_text(encoding="utf-8")
    return ("bash", "--norc", "-c", text, "bash")


def _load_key(pair: KeyPair) -> PKey:
    import paramiko

    path = str(pair.private_path)
    try:
        return paramiko.Ed25519Key.from_private_key_file(path)
    except FileNotFoundError as error:
        raise UnreachableError("the run's SSH key was deleted when its machine was destroyed") from error
    except (OSError, paramiko.SSHException) as error:
        raise StorageError(f"the run's SSH key cannot be read: {path}") from error


@contextlib.contextmanager
def _mapped_errors(limit_s: float) -> Iterator[None]:
    """Map errors of one address to UnreachableError."""
    import paramiko

    try:
        yield
    except ConnectionRefusedError as error:
        raise UnreachableError("refused the connection") from error
    except TimeoutError as error:
        raise UnreachableError(f"no answer within {limit_s:g} s") from error
    except (ConnectionError, EOFError) as error:
        raise UnreachableError("closed the connection") from error
    except OSError as error:
        raise UnreachableError(error.strerror or "cannot be reached") from error
    except paramiko.SSHException as error:
        raise UnreachableError(f"does not answer as an SSH server: {error}") from error


def _summarize(faults: Sequence[tuple[Address, UnreachableError]]) -> UnreachableError:
    """Return the most specific error, with the errors of all addresses in its text."""
    text = "; ".join(f"{host}:{port} {error}" for (host, port), error in faults) or "it has no address yet"
    for kind in (HostKeyError, KeyRejectedError):
        for _, error in faults:
            if isinstance(error, kind):
                return kind(f"SSH: {text}", hint=error.hint)
    return UnreachableError(f"SSH: {text}")


class PendingSocket:
    """A TCP connection opened in a thread: the system's name resolution and connect() cannot be interrupted.

    pending = PendingSocket(("host", 22), timeout_s=8)
    connected = pending.wait(check)
    """

    def __init__(self, address: tuple[str, int], timeout_s: float) -> None:
        self._address, self._timeout_s = address, timeout_s
        self._opened: Future[socket.socket] = Future()
        threading.Thread(target=self._open, name="tcp connect", daemon=True).start()

    def wait(self, check: Callable[[], None]) -> socket.socket:
        """Return the socket. `check` is called every second; an error that it raises ends the wait.

        Raises OSError as `connect()` does, and UnreachableError after `close`.
        """
        try:
            while not wait([self._opened], timeout=1.0).done:
                check()
            return self._opened.result()
        except CancelledError as error:
            raise UnreachableError("connection attempt aborted") from error
        finally:
            self.close()

    def close(self) -> None:
        """Abandon the attempt, from any thread; a connection that is open already stays open."""
        self._opened.cancel()

    def _open(self) -> None:
        sock: socket.socket | None = None
        try:
            sock = socket.create_connection(self._address, timeout=self._timeout_s)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
            self._opened.set_result(sock)
        except InvalidStateError:  # abandoned meanwhile
            if sock is not None:
                sock.close()
        except (OSError, UnicodeError) as error:
            is_name = isinstance(error, UnicodeError)  # raised when a host name cannot be encoded (IDNA)
            with suppress(InvalidStateError):
                self._opened.set_exception(OSError(EINVAL, "invalid host name") if is_name else error)
