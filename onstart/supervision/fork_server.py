"""Fork server: starts ranks as forks of a process that has torch loaded. Standard library only.

Importing torch and the trainer takes each rank seconds of CPU time at each start; a fork takes milliseconds.
The launch agent forks the server while it has one thread. The watcher of each rank (`rank_process.py`)
requests a fork, passes its environment and its log, and receives its exit status.

    watcher -> server   a byte with stdout and stderr; {"env": {...}, "cwd": "..."} as JSON, a line
    server -> watcher   the fork's pid, a line; later its wait status, a line
    watcher is gone     the fork is killed; the server is gone: the fork is killed, too

The address is in Linux's abstract namespace, since the path of a box may be too long for a socket. Its name
is secret, and other users are not served.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

from vastrun.onstart.supervision.processes import die_with_parent, send

ADDRESS = "VASTRUN_FORK_SERVER"
"""Environment variable with the server's name."""
_CREDENTIALS = struct.Struct("3i")
_STREAMS = (1, 2)


def start_server(program: Callable[[], NoReturn]) -> str:
    """Fork a server whose forks run `program`; return its name. Call while this process has one thread.

    It ends with this process. Raises OSError where abstract sockets are not supported.
    """
    name, parent = f"vastrun-{secrets.token_hex(16)}", os.getpid()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen(socket.SOMAXCONN)
        if os.fork() == 0:
            os.setsid()  # a signal to the agent's group must not reach the ranks
            die_with_parent(parent)
            _serve(listener, program)
    return name


@dataclass
class ForkedProgram:
    """A fork that runs the program, from the view of its watcher."""

    pid: int
    _answers: BinaryIO

    @classmethod
    def request(cls, name: str, env: Mapping[str, str], cwd: Path) -> ForkedProgram:
        """Start a fork with this environment and folder, and this process's stdout and stderr.

        Raises OSError when the server does not respond.
        """
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(f"\0{name}")
        request = json.dumps({"env": dict(env), "cwd": str(cwd)})
        socket.send_fds(connection, [b"\0"], _STREAMS)
        connection.sendall(f"{request}\n".encode())
        answers = connection.makefile("rb")
        if not (pid := answers.readline()):
            raise ConnectionError("the server is gone")
        return cls(int(pid), answers)

    def wait(self) -> int:
        """Return the exit code once the fork has ended; negative: minus the signal's number."""
        try:
            return os.waitstatus_to_exitcode(int(self._answers.readline()))
        except (OSError, ValueError):  # the server is gone, and so is the fork
            send(self.pid, signal.SIGKILL)
            return -signal.SIGKILL


def _serve(listener: socket.socket, program: Callable[[], NoReturn]) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the keepers
    server = os.getpid()
    while True:
        connection, _ = listener.accept()
        with connection:
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            if int(_CREDENTIALS.unpack(credentials)[1]) == os.getuid() and os.fork() == 0:
                listener.close()
                die_with_parent(server)
                _serve_one(connection, program)


def _serve_one(connection: socket.socket, program: Callable[[], NoReturn]) -> NoReturn:
    """Start one fork and report its exit status; kill it when its watcher is gone."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    _, streams, _, _ = socket.recv_fds(connection, 1, len(_STREAMS))
    request = json.loads(connection.makefile("rb").readline())
    keeper, copy = os.getpid(), os.fork()
    if copy == 0:
        signal.set_wakeup_fd(-1)
        for fd in (woken, wake, connection.fileno()):
            os.close(fd)
        # As if the watcher had started it.
        os.setsid()
        die_with_parent(keeper)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.environ.clear()
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        for source, target in zip([os.open(os.devnull, os.O_RDONLY), *streams], (0, *_STREAMS), strict=True):
            os.dup2(source, target)
            os.close(source)
        program()
    for stream in streams:
        os.close(stream)
    connection.sendall(f"{copy}\n".encode())
    while True:
        ready, _, _ = select.select([woken, connection.fileno()], [], [])
        if woken in ready:  # it ended, or was stopped or continued, as by a debugger
            os.read(woken, select.PIPE_BUF)
        ended, status = os.waitpid(copy, os.WNOHANG)
        if ended:
            connection.sendall(f"{status}\n".encode())
            os._exit(0)
        if connection.fileno() in ready:  # the watcher is gone
            os.kill(copy, signal.SIGKILL)
            os._exit(1)
