"""The first process of an emulated box, as a container's PID 1: starts its programs, and ends them all.

In: argv, a JSON file that box.py wrote; stdin, a pipe whose end means "stop"; the container's environment.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

_PR_SET_CHILD_SUBREAPER = 36
_CLONE_NEWNS = 0x00020000
_MS_BIND, _MS_REC, _MS_PRIVATE = 1 << 12, 1 << 14, 1 << 18
_OWN = ("workspace", "etc/ssh", "etc/environment")
_HOME = "root"
_GRACE_S = 0.15
"""A box that asks for its own end still gets the answer."""


def main() -> None:
    """Run until it is told to stop."""
    with open(sys.argv[1], encoding="utf-8") as file:  # noqa: PTH123 (pathlib costs a tenth of the start)
        plan = json.load(file)
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if _seclude(libc, plan["root"], plan["safe_folder"]):
        plan["ssh_server"] += plan["strict"]
    signal.signal(signal.SIGCHLD, lambda *_: None)
    wake, wake_writer = os.pipe()
    os.set_blocking(wake_writer, False)
    signal.set_wakeup_fd(wake_writer)
    log = os.open(plan["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    _start(plan["command"], log, plan["cwd"])
    _serve(plan, _listener(plan, log), wake, log)
    _kill_everything()


def _listener(plan: Mapping[str, Any], log: int) -> socket.socket | None:
    """Whose connections get a server each; none where one server takes them all."""
    listener = socket.socket(fileno=plan["sshd_fd"])
    if plan["serves_one"]:
        return listener
    with listener:
        subprocess.Popen(
            plan["ssh_server"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={"PATH": os.environ["PATH"]},
            pass_fds=[listener.fileno()],
        )
    return None


def _seclude(libc: ctypes.CDLL, root: str, safe_folder: str) -> bool:
    """Puts the box's own folders where a container has them, if that is allowed here.

    Whether its home lies in the safe folder as well, so that sshd can be strict about modes.
    """
    with contextlib.suppress(OSError):
        os.makedirs("/workspace", exist_ok=True)  # noqa: PTH103
    if libc.unshare(_CLONE_NEWNS) != 0:
        return False
    libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    for name in _OWN:
        libc.mount(f"{root}/{name}".encode(), f"/{name}".encode(), None, _MS_BIND, None)
    home: int = libc.mount(f"{root}/{_HOME}".encode(), safe_folder.encode(), None, _MS_BIND, None)
    return home == 0


def _serve(plan: Mapping[str, Any], listener: socket.socket | None, wake: int, log: int) -> None:
    sources = [sys.stdin.fileno(), wake, *([listener] if listener else [])]
    while True:
        ready = select.select(sources, [], [])[0]
        if listener and listener in ready:
            _serve_ssh(plan["ssh_server"], listener, log)
        if wake in ready:
            os.read(wake, 4096)
            _reap()
        if sys.stdin.fileno() in ready:
            time.sleep(_GRACE_S)
            return


def _start(command: list[str], log: int, cwd: str) -> None:
    if not command:
        return
    try:
        subprocess.Popen(
            command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    except OSError as error:
        os.write(log, f"{error}\n".encode())


def _serve_ssh(sshd: Sequence[str], listener: socket.socket, log: int) -> None:
    with contextlib.suppress(OSError):
        connection, _ = listener.accept()
        with connection:
            subprocess.Popen(
                list(sshd),
                stdin=connection.fileno(),
                stdout=connection.fileno(),
                stderr=log,
                env={"PATH": os.environ["PATH"]},
            )


def _reap() -> None:
    """Buries the dead."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _kill_everything() -> None:
    """Kills until no descendant is left: whoever lost its parent has become our child."""
    while victims := _descendants():
        for sign in (signal.SIGSTOP, signal.SIGKILL):
            for pid in victims:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, sign)
        _reap()
        time.sleep(0.005)


def _descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                fields = file.read().rpartition(b")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(name))
    found, front = [], [os.getpid()]
    while front:
        below = children.get(front.pop(), [])
        found += below
        front += below
    return found


if __name__ == "__main__":
    main()
