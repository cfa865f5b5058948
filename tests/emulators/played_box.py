"""A box that is played: an SSH server within this process, and behind it a script of the clock.

For hundreds of machines at once, whose processes no computer would have room for. The launcher's side is
real: keys, host keys by the log, every byte of every command and file. What comes of them `tests/fakebox.py`
makes up.
"""

import base64
import contextlib
import hashlib
import io
import itertools
import shlex
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL, OPEN_SUCCEEDED

from tests.emulators.box import Box, Graphics, Program
from tests.emulators.clock import Clock
from tests.emulators.ssh_stand_in import Transport
from tests.fakebox import FakeBox, Training
from tests.fakes import FakeRemote
from tests.offers import rtx_4090
from vastrun.contract import layout
from vastrun.launcher.core import Instance, RentalOrder
from vastrun.launcher.ssh.connection import script

_HARDWARE = "disk_kb 104857600\nmemory_kb 131886272\n"
_ANYWHERE = rtx_4090()


class PlayedBoxes:
    """Makes boxes. `training`: of the one with that number, from 0. `env`: where an order says no other."""

    def __init__(
        self, clock: Clock, training: Callable[[int], Training], env: Mapping[str, str] | None = None
    ) -> None:
        self._clock, self._training, self._env = clock, training, env or {}
        self._numbers = itertools.count()

    def make(self, _name: str, graphics: Graphics) -> Box:
        """Make the next one."""
        return PlayedBox(self._clock, graphics, self._training(next(self._numbers)), self._env)


class PlayedBox:
    """The Box of a script. Its disk does not stay between `end` and the next `start`."""

    def __init__(self, clock: Clock, graphics: Graphics, training: Training, env: Mapping[str, str]) -> None:
        self.clock = clock
        self._graphics, self._training, self._env = graphics, training, env
        private = Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
        self._host_key = paramiko.Ed25519Key(file_obj=io.StringIO(private.decode()))
        self._listener: socket.socket | None = None
        self._transports: list[paramiko.Transport] = []
        self._box: FakeBox | None = None
        self._log = ""
        self._lock = threading.Lock()
        self.keys: frozenset[str] = frozenset()
        """Who may log in."""

    def start(self, program: Program, keys: Sequence[str]) -> None:
        self.end()
        self.authorize(keys)
        instance = Instance(
            id="", label="", state="running", usd_per_hour=0.0, rented_at=self.clock.now(), host=""
        )
        order = RentalOrder(
            offer=_ANYWHERE,
            label="",
            image=None,
            disk_gb=0.0,
            onstart=program.onstart,
            env={**self._env, **program.env},
            max_usd=0.0,
        )
        self._box = FakeBox(instance, order, self._training, self.clock)
        self._log += f"256 {_fingerprint(self._host_key)} box (ED25519)\n"
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def authorize(self, keys: Sequence[str]) -> None:
        self.keys = frozenset(key.split()[1] for key in keys)

    def port(self, name: str) -> int | None:
        if name != "22/tcp" or self._listener is None or self._has_ended():
            return None
        return int(self._listener.getsockname()[1])

    @property
    def exit_code(self) -> int | None:
        return 0 if self.over and self._box is not None else None

    @property
    def over(self) -> bool:
        return self._listener is None

    def end(self) -> None:
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        for transport in self._transports:
            transport.close()
        self._transports.clear()

    def wipe(self) -> None:
        self.end()
        self._box = None

    def log(self) -> str:
        return self._log

    def note(self, text: str) -> None:
        self._log += text

    def box(self, _id: str) -> FakeBox:
        """The script, at its present line."""
        assert self._box is not None
        self._box.advance()
        return self._box

    def shown_by(self, _box: FakeBox) -> str:
        """What the box's own tools print of its hardware."""
        gpus = "".join(f"gpu {self._graphics.memory_mb}, NVIDIA {name}\n" for name in self._graphics.names)
        used = f"gpu_used {self._graphics.used_mb}, {self._graphics.memory_mb}\n" * len(self._graphics.names)
        return f"{_HARDWARE}{gpus}{used}cuda 13.0\n"

    def downloaded_by(self, _box: FakeBox) -> str:
        """What the box prints of a download at 80 Mbit/s."""
        return "down 16000000 100.00 101.60\n"

    def execute(self, command: str) -> tuple[int, str, str]:
        """Exit code and both outputs of a command of the launcher's."""
        with self._lock:
            done = FakeRemote(self, "").run(command, timeout_s=600.0)
            if layout.SHIPPED in command and self._box is not None:
                self._box.files.pop(layout.INBOX_BUNDLE, None)  # what was unpacked takes memory, and no more
        return done.exit_code, done.stdout, done.stderr

    def store(self, path: str, content: bytes) -> None:
        """Keep a file."""
        with self._lock:
            self.box("").files[path] = content

    def part(self, path: str, offset: int, limit: int) -> bytes:
        """A part of a file; nothing of one that is not there."""
        with self._lock:
            return self.box("").files.get(path, b"")[offset : offset + limit]

    def _has_ended(self) -> bool:
        """By its lease."""
        return self._box is None or self._box.lease_end() is not None

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport = Transport(connection)
            transport.add_server_key(self._host_key)
            self._transports = [one for one in self._transports if one.is_active()] + [transport]
            with contextlib.suppress(paramiko.SSHException, EOFError):
                transport.start_server(event=threading.Event(), server=_Server(self))


@dataclass
class _Server(paramiko.ServerInterface):
    """One connection to a played box."""

    box: PlayedBox

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return AUTH_SUCCESSFUL if key.get_base64() in self.box.keys else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        words = shlex.split(command.decode().removeprefix("exec "))
        threading.Thread(target=_serve, args=(self.box, channel, words), daemon=True).start()
        return True


def _serve(box: PlayedBox, channel: paramiko.Channel, words: Sequence[str]) -> None:
    """What `launcher/ssh/scripts` do, without a shell."""
    transport = channel.get_transport()
    assert isinstance(transport, Transport)
    transport.answered[channel.remote_chanid].wait()
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
        start = len(script("session"))
        mark = f"\n{words[start]} 4242\n".encode()
        channel.sendall(mark)
        channel.sendall_stderr(mark)
        code = _do(box, channel, words[words.index("--", start) + 1 :])
        channel.send_exit_status(code)
        channel.close()


def _do(box: PlayedBox, channel: paramiko.Channel, words: Sequence[str]) -> int:
    if words[0] == "timeout":
        code, out, err = box.execute(words[-1])
        channel.sendall(out.encode())
        channel.sendall_stderr(err.encode())
        return code
    own = words[len(script("store")) :]
    if tuple(words[: -len(own)]) == script("store"):
        return _store(box, channel, *own)
    if tuple(words) == script("fetch"):
        asked = b""
        while chunk := channel.recv(1 << 16):
            asked += chunk
            while asked.count(b"\0") >= 3:
                path, offset, limit, asked = asked.split(b"\0", 3)
                part = box.part(path.decode(), int(offset), int(limit))
                channel.sendall(f"{len(part)}\n".encode() + part)
    return 0


def _store(box: PlayedBox, channel: paramiko.Channel, path: str, size: str, sha256: str, _mode: str) -> int:
    channel.sendall(b"0\n")
    content = bytearray()
    while len(content) < int(size) and (chunk := channel.recv(1 << 16)):
        content += chunk
    channel.sendall(b"received\n")
    if hashlib.sha256(content).hexdigest() != sha256:
        return 4
    box.store(path, bytes(content))
    return 0


def _fingerprint(key: paramiko.PKey) -> str:
    digest = hashlib.sha256(key.asbytes()).digest()
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"
