"""An SSH server on a loopback port, all of it in one folder. Use it in a `with`."""

import contextlib
import os
import pwd
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.emulators import ssh_keys, ssh_servers
from tests.waiting import LONGEST_S, eventually, has_ended

_CONFIG = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/home/.ssh/authorized_keys
PidFile none
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
MaxStartups 100
SetEnv HOME={folder}/home
Subsystem sftp internal-sftp
"""
_BY_BASH = 'ForceCommand exec bash -c "$SSH_ORIGINAL_COMMAND"\n'
"""Of a user whose own shell is another one, and does not read `.bashrc`."""
_LENIENT = ("-o", "PerSourcePenalties=no")
"""Known to OpenSSH from 9.8 on, which otherwise shuts out who fails to log in a few times."""


class Sshd:
    """Lets in whoever holds one of its authorized keys, as the user who runs the tests."""

    def __init__(self, folder: Path, *, real: bool = True) -> None:
        """`real`: it is OpenSSH's, where that is installed; else the stand-in for it."""
        self._folder = folder
        self._sshd = ssh_servers.sshd() if real else None
        self.user = ssh_servers.user()
        self.home = folder / "home"
        """Of those who log in: its `.bashrc` is read before every command."""
        self.keys = self.home / ".ssh/authorized_keys"
        self.address = ("127.0.0.1", 0)
        self._place = socket.socket()
        """Keeps the port, also while no server listens there: nobody else comes to answer."""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self.keys.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.keys.touch(mode=0o600)
        if not (self._folder / "host_key").exists():
            self.new_host_key()
        if not self.address[1]:
            self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._place.bind(self.address)
            self.address = self._place.getsockname()
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.stop()
        self._place.close()

    @property
    def is_strict(self) -> bool:
        """Whether it refuses keys that others may write; OpenSSH's needs the right to mount."""
        if self._sshd is None:
            return True
        assert self._process is not None
        return b"StrictModes=yes" in Path(f"/proc/{self._process.pid}/cmdline").read_bytes()

    @property
    def fingerprint(self) -> str:
        """Of its host key, as `ssh-keygen -l` prints it."""
        return ssh_keys.fingerprint(self._folder / "host_key.pub")

    @property
    def log(self) -> str:
        """What the server said."""
        return (self._folder / "sshd.log").read_text(encoding="utf-8", errors="replace")

    def authorize(self, public_key: str) -> None:
        """One more key is let in."""
        with self.keys.open("a", encoding="ascii") as file:
            file.write(public_key.strip() + "\n")

    def new_host_key(self) -> None:
        """From its next start on, it shows another host key."""
        for name in ("host_key", "host_key.pub"):
            (self._folder / name).unlink(missing_ok=True)
        ssh_keys.make_pair(self._folder / "host_key")

    def start(self) -> None:
        """The server listens, at the same address as before."""
        port = self.address[1]
        command = self._openssh(self._sshd, port) if self._sshd else self._stand_in(port)
        with (self._folder / "sshd.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._await_listening()

    def stop(self) -> None:
        """The server and the connections that it holds are gone; what runs on the machine goes on."""
        if self._process is None:
            return
        # Held first: a process that it made in the last moment would listen on for a while.
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)
        below = _below(self._process.pid)
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        eventually(lambda: all(has_ended(pid) for pid in below), what="the end of the server's processes")
        self._process.kill()
        self._process.wait()
        self._process = None

    def _openssh(self, sshd: str, port: int) -> list[str]:
        config = self._folder / "sshd_config"
        shell = Path(pwd.getpwuid(os.geteuid()).pw_shell).name
        text = _CONFIG.format(port=port, folder=self._folder) + (_BY_BASH if shell != "bash" else "")
        config.write_text(text, encoding="ascii")
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # it refuses to start without
        server = [sshd, "-f", str(config)]
        if not subprocess.run([*server, *_LENIENT, "-t"], capture_output=True).returncode:
            server += _LENIENT
        return ssh_servers.strictly(self.home, [*server, "-D", "-e"])

    def _stand_in(self, port: int) -> list[str]:
        return ssh_servers.stand_in(
            f"--port={port}",
            host_key=self._folder / "host_key",
            authorized_keys=self.keys,
            home=self.home,
            log_logins=True,
        )

    def _await_listening(self) -> None:
        deadline = time.monotonic() + LONGEST_S
        while self._process is not None and self._process.poll() is None:
            with socket.socket() as plug:
                if plug.connect_ex(self.address) == 0:
                    return
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
        raise RuntimeError(f"sshd did not start: {self.log}")


def _below(pid: int) -> list[int]:
    """The server's own processes for its connections: a parent with privileges, and a child without."""
    found: list[int] = []
    for child in _children(pid):
        if _name(child).startswith("sshd"):
            found += [*_below(child), child]
    return found


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
