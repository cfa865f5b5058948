"""Connection: one SSH connection to the first address that answers, made anew when it broke."""

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
from vastrun.launcher.ssh.hosts import Address, KnownHosts
from vastrun.launcher.ssh.keys import KeyPair
from vastrun.launcher.ssh.session import BrokenError, Check, SshSession

if TYPE_CHECKING:
    from paramiko import Channel, PKey, Transport

_KEEP_ALIVE_S = 10
_SILENT = logging.NullHandler()
"""Without one, paramiko's complaints about broken lines go to the terminal."""
_CHECK_INTERVAL_S = 1.0
_UNACKNOWLEDGED_MS = 30_000


class KeyRefusedError(UnreachableError):
    """The machine answers, and does not accept our key."""


@dataclass(frozen=True, kw_only=True)
class ConnectTimeouts:
    """How long a silent machine is waited for."""

    connect_s: float = 8.0
    """At each address, for each step of getting in."""
    stall_s: float = 20.0
    """While nothing moves on a connection."""


@dataclass(frozen=True, kw_only=True)
class Login:
    """How to get into one machine."""

    addresses: Sequence[Address]
    """Host and port: direct, proxy. Those that answered before are tried first."""
    key: KeyPair
    hosts: KnownHosts
    user: str = "root"
    timeouts: ConnectTimeouts = ConnectTimeouts()
    on_key: Callable[[bool], None] = lambda _: None
    """Called with True when the machine accepts the key, with False when no address does and one rejects it.

    What it raises then is the error of the connection.
    """


class Connection:
    """Starts commands on the machine. Raises UnreachableError, which says how each address failed."""

    def __init__(self, login: Login) -> None:
        self._login = login
        self._transport: Transport | None = None
        self._dialing: PendingSocket | Transport | None = None
        """On its way in: neither checked nor let in yet."""
        self.address: Address | None = None
        """The one that answered last."""
        self.auth_failures = 0
        """How often an address did not accept the key."""
        self.check: Check = lambda: None
        """Called every second while the machine is waited for; what it raises ends the wait."""

    @property
    def identity(self) -> str:
        """How the machine is known to be ours."""
        return self._login.hosts.identity

    def start(self, box: str, argv: Sequence[str], env: Sequence[str] = ()) -> SshSession:
        """Start the command in the folder `box`. `env`: `NAME=value`, no secrets."""
        token = secrets.token_hex(8)
        words = [*script("session"), token, box, *env, "--", *argv]
        channel = self._channel(f"exec {shlex.join(words)}")
        return SshSession(channel, token, stall_s=self._login.timeouts.stall_s, check=self.check)

    def abort(self) -> None:
        """Break the connection, from another thread: what waits for the machine raises soon."""
        for one in (self._dialing, self._transport):
            if one is not None:
                one.close()

    def drop(self) -> None:
        """Close the connection; the next command gets a new one."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def _channel(self, command: str) -> Channel:
        """Connects again when the connection turns out to be broken before the command was sent."""
        transport = self._transport
        if transport is not None and transport.is_active():
            try:
                return self._executed(transport, command)
            except BrokenError:
                self.drop()
        self._transport = self._dial_any()
        return self._executed(self._transport, command)

    def _dial_any(self) -> Transport:
        faults: list[tuple[Address, UnreachableError]] = []
        key = _loaded(self._login.key)
        known = self._login.hosts.knows
        for address in sorted(self._login.addresses, key=lambda a: (a != self.address, not known(a))):
            self.check()  # each address may take a while
            try:
                transport = self._dial(address, key)
            except UnreachableError as error:
                faults.append((address, error))
                self.auth_failures += isinstance(error, KeyRefusedError)
            else:
                self.address = address
                self._login.on_key(True)
                return transport
        if any(isinstance(error, KeyRefusedError) for _, error in faults):
            self._login.on_key(False)
        raise _summed_up(faults)

    def _dial(self, address: Address, key: PKey) -> Transport:
        import paramiko

        logging.getLogger("paramiko").addHandler(_SILENT)
        limit_s = self._login.timeouts.connect_s
        with _in_words(limit_s), contextlib.ExitStack() as until_open:
            self._dialing = pending = PendingSocket(address, limit_s)
            transport = paramiko.Transport(pending.wait(self.check))
            # Also on Ctrl-C: the socket and the transport's thread would stay.
            until_open.callback(transport.close)
            self._dialing = transport
            transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = limit_s
            transport.start_client(timeout=2 * limit_s)
            # The host key is checked before our key is offered: a stranger learns nothing of us.
            self._login.hosts.check(address, transport.get_remote_server_key())
            self._identify(transport, key)
            transport.set_keepalive(_KEEP_ALIVE_S)
            until_open.pop_all()
        return transport

    def _identify(self, transport: Transport, key: PKey) -> None:
        """Raises KeyRefusedError only when the machine said so. Paramiko says it of a broken line, too."""
        import paramiko

        try:
            transport.auth_publickey(self._login.user, key)
        except paramiko.AuthenticationException as error:
            if transport.is_active() and "timeout" not in str(error):
                raise KeyRefusedError("does not accept our key") from error
            raise UnreachableError("disconnected during authentication") from error

    def _executed(self, transport: Transport, command: str) -> Channel:
        """Raises BrokenError when the machine did not take the command."""
        import paramiko

        limit_s = self._login.timeouts.stall_s
        watchdog = threading.Timer(limit_s, transport.close)  # paramiko itself would wait for ever
        watchdog.start()
        try:
            channel = transport.open_session(timeout=limit_s)
            channel.exec_command(command)
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise BrokenError("the connection broke") from error
        finally:
            watchdog.cancel()
        return channel


@functools.cache
def script(name: str) -> tuple[str, ...]:
    """Return the words that run one of our scripts on the machine; its own words follow.

    Without --norc, bash takes itself for a login and reads the user's .bashrc once more.
    """
    text = (Path(__file__).parent / "scripts" / f"{name}.sh").read_text(encoding="utf-8")
    return ("bash", "--norc", "-c", text, "bash")


def _loaded(pair: KeyPair) -> PKey:
    import paramiko

    path = str(pair.private_path)
    try:
        return paramiko.Ed25519Key.from_private_key_file(path)
    except FileNotFoundError as error:
        raise UnreachableError("the run's SSH key was deleted when its machine was destroyed") from error
    except (OSError, paramiko.SSHException) as error:
        raise StorageError(f"the run's SSH key cannot be read: {path}") from error


@contextlib.contextmanager
def _in_words(limit_s: float) -> Iterator[None]:
    """What went wrong with one address."""
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


def _summed_up(faults: Sequence[tuple[Address, UnreachableError]]) -> UnreachableError:
    """The most telling fault, with all of them in its text."""
    text = "; ".join(f"{host}:{port} {error}" for (host, port), error in faults) or "it has no address yet"
    for kind in (HostKeyError, KeyRefusedError):
        for _, error in faults:
            if isinstance(error, kind):
                return kind(f"SSH: {text}", hint=error.hint)
    return UnreachableError(f"SSH: {text}")


class PendingSocket:
    """Opens the connection in a thread: nothing else ends the system's name resolution or its connect().

    pending = PendingSocket(("host", 22), timeout_s=8)
    connected = pending.wait(check)
    """

    def __init__(self, address: tuple[str, int], timeout_s: float) -> None:
        self._address, self._timeout_s = address, timeout_s
        self._opened: Future[socket.socket] = Future()
        threading.Thread(target=self._open, name="tcp connect", daemon=True).start()

    def wait(self, check: Callable[[], None]) -> socket.socket:
        """Return the socket. `check` is called each second; what it raises ends the wait.

        Raises OSError as `connect()` does; UnreachableError once it was closed.
        """
        try:
            while not wait([self._opened], timeout=_CHECK_INTERVAL_S).done:
                check()
            return self._opened.result()
        except CancelledError as error:
            raise UnreachableError("connection attempt aborted") from error
        finally:
            self.close()

    def close(self) -> None:
        """Give up the connection, from any thread; one that is open already stays open."""
        self._opened.cancel()

    def _open(self) -> None:
        plug: socket.socket | None = None
        try:
            plug = socket.create_connection(self._address, timeout=self._timeout_s)
            plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)
            self._opened.set_result(plug)
        except InvalidStateError:  # it was given up meanwhile
            if plug is not None:
                plug.close()
        except (OSError, UnicodeError) as error:
            is_name = isinstance(error, UnicodeError)  # of the encoding of host names
            with suppress(InvalidStateError):
                self._opened.set_exception(OSError(EINVAL, "invalid host name") if is_name else error)
