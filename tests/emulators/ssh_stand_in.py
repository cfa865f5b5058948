"""A small SSH server, for where OpenSSH's is not installed: it runs commands for who holds an authorized key.

In: argv. Out: on stderr, if asked for, who came, was let in or not, and left. It does what the tests need
of `sshd`: one user, keys, `exec` with both outputs, the end of input, exit codes and signals; no terminals.
"""

import argparse
import contextlib
import logging
import os
import pwd
import select
import signal
import socket
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import paramiko
from paramiko.common import (
    AUTH_FAILED,
    AUTH_SUCCESSFUL,
    OPEN_SUCCEEDED,
    cMSG_CHANNEL_REQUEST,
    cMSG_CHANNEL_SUCCESS,
)

_CHUNK = 1 << 15
_LOOK_EVERY_MS = 100
"""Whether who asked for a command that prints nothing is still there."""
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What `sshd_config` says of the same things."""

    authorized_keys: Path
    set_env: Mapping[str, str]
    force_command: str | None
    """Run in the place of what was asked for, which stands in SSH_ORIGINAL_COMMAND."""
    log_logins: bool
    account: pwd.struct_passwd = field(default_factory=lambda: pwd.getpwuid(os.geteuid()))


class Transport(paramiko.Transport):
    """Tells which requests were answered: what a quick command has to say must come after that."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self.answered: defaultdict[int, threading.Event] = defaultdict(threading.Event)
        """By the channel's number at the other end."""

    def _send_user_message(self, data: paramiko.Message) -> None:
        super()._send_user_message(data)
        message = data.asbytes()
        if message[:1] == cMSG_CHANNEL_SUCCESS:
            self.answered[int.from_bytes(message[1:5], "big")].set()


class Server(paramiko.ServerInterface):
    """One connection."""

    def __init__(self, settings: Settings, connection: socket.socket) -> None:
        self._settings = settings
        client, server = connection.getpeername(), connection.getsockname()
        self._variables = {
            "SSH_CLIENT": f"{client[0]} {client[1]} {server[1]}",
            "SSH_CONNECTION": f"{client[0]} {client[1]} {server[0]} {server[1]}",
        }
        self._from = f"{client[0]} port {client[1]}"
        self._last_said = ""

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        """Read anew each time: keys come and go while the server runs."""
        with contextlib.suppress(OSError):
            _must_be_strict(self._settings.authorized_keys)
            known = [line.split()[:2] for line in self._settings.authorized_keys.read_text().splitlines()]
            if username == self._settings.account.pw_name and [key.get_name(), key.get_base64()] in known:
                self._log("Accepted publickey")
                return AUTH_SUCCESSFUL
        self._log("Failed publickey")
        return AUTH_FAILED

    def closed(self) -> None:
        """Nobody is there any more."""
        self._log("Connection closed")

    def check_channel_request(self, kind: str, chanid: int) -> int:
        if kind != "session":
            return paramiko.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        try:
            process = self._start(os.fsdecode(command))
        except OSError as error:
            print(error, file=sys.stderr, flush=True)
            return False
        threading.Thread(target=_serve, args=(channel, process), daemon=True).start()
        return True

    def _log(self, event: str) -> None:
        """Once: a client may ask whether a key would do before it shows that it has it."""
        if self._settings.log_logins and event != self._last_said:
            print(f"{event} from {self._from}", file=sys.stderr, flush=True)
            self._last_said = event

    def _start(self, command: str) -> subprocess.Popen[bytes]:
        account = self._settings.account
        variables = {
            "USER": account.pw_name,
            "LOGNAME": account.pw_name,
            "HOME": account.pw_dir,
            "PATH": _SYSTEM_PATH,
            "SHELL": "/bin/bash",
            **self._variables,
            **self._settings.set_env,
        }
        forced = self._settings.force_command
        if forced is not None:
            variables["SSH_ORIGINAL_COMMAND"] = command
        return subprocess.Popen(
            ["bash", "-c", forced or command],
            cwd=account.pw_dir if Path(account.pw_dir).is_dir() else "/",
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )


def _must_be_strict(keys: Path) -> None:
    """Raises PermissionError where the file, ~/.ssh or the home is another user's or others may write it."""
    for path in (keys, keys.parent, keys.parent.parent):
        status = path.stat()
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
            raise PermissionError(f"bad ownership or modes for {path}")


def _serve(channel: paramiko.Channel, process: subprocess.Popen[bytes]) -> None:
    """Until its outputs end, which may be long after the command, or nobody is there any more.

    Then the command goes on, as under `sshd`, with nobody who writes to it or reads from it.
    """
    assert process.stdin and process.stdout and process.stderr
    channel.transport.answered[channel.remote_chanid].wait()
    threading.Thread(target=_feed, args=(channel, process.stdin), daemon=True).start()
    outputs = [
        threading.Thread(target=_pump, args=(process.stdout, channel, channel.sendall), daemon=True),
        threading.Thread(target=_pump, args=(process.stderr, channel, channel.sendall_stderr), daemon=True),
    ]
    for output in outputs:
        output.start()
    code = process.wait()
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
        if not channel.closed:
            _tell_end(channel, code)
    for output in outputs:
        output.join()
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
        channel.close()


def _feed(channel: paramiko.Channel, pipe: IO[bytes]) -> None:
    with contextlib.suppress(OSError), pipe:
        while chunk := channel.recv(_CHUNK):
            rest = memoryview(chunk)
            while rest:
                rest = rest[os.write(pipe.fileno(), rest) :]


def _pump(pipe: IO[bytes], channel: paramiko.Channel, send: Callable[[bytes], object]) -> None:
    look = select.poll()
    look.register(pipe, select.POLLIN)
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException), pipe:
        while not channel.closed:
            if look.poll(_LOOK_EVERY_MS):
                chunk = os.read(pipe.fileno(), _CHUNK)
                if not chunk:
                    return
                send(chunk)


def _tell_end(channel: paramiko.Channel, code: int) -> None:
    """Of a command that a signal ended, the signal's name; paramiko itself knows exit codes only."""
    if code >= 0:
        channel.send_exit_status(code)
        return
    message = paramiko.Message()
    message.add_byte(cMSG_CHANNEL_REQUEST)
    message.add_int(channel.remote_chanid)
    message.add_string("exit-signal")
    message.add_boolean(False)
    message.add_string(signal.Signals(-code).name.removeprefix("SIG"))
    message.add_boolean(False)
    message.add_string("")
    message.add_string("")
    channel.transport._send_user_message(message)


def _connect(connection: socket.socket, host_key: paramiko.PKey, settings: Settings) -> None:
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server = Server(settings, connection)
        transport = Transport(connection)
        transport.add_server_key(host_key)
        transport.start_server(event=threading.Event(), server=server)
        transport.join()
        server.closed()


def main() -> None:
    """Serves until it is killed."""
    options = _parser().parse_args()
    settings = Settings(
        authorized_keys=options.authorized_keys,
        set_env=dict(pair.split("=", 1) for pair in options.set_env),
        force_command=options.force_command,
        log_logins=options.log_logins,
    )
    logging.getLogger("paramiko").addHandler(logging.NullHandler())
    host_key = paramiko.Ed25519Key(filename=str(options.host_key))
    if options.listening_fd is not None:
        listener = socket.socket(fileno=options.listening_fd)
    else:
        listener = socket.create_server(("127.0.0.1", options.port), backlog=128)
    while True:
        with contextlib.suppress(OSError):
            connection = listener.accept()[0]
            threading.Thread(target=_connect, args=(connection, host_key, settings), daemon=True).start()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--port", type=int, help="of the loopback interface")
    where.add_argument("--listening-fd", type=int, help="a socket that listens already")
    parser.add_argument("--host-key", type=Path, required=True, help="an Ed25519 key")
    parser.add_argument("--authorized-keys", type=Path, required=True)
    parser.add_argument("--set-env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--force-command")
    parser.add_argument("--log-logins", action="store_true")
    return parser


if __name__ == "__main__":
    main()
