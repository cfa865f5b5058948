"""A machine to log in to: an SSH server, a box's folder, and a key that it accepts."""

import os
import shutil
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.emulators.sshd import Sshd
from vastrun.launcher.ssh.connection import ConnectTimeouts, Login
from vastrun.launcher.ssh.keys import KeyRing, KnownHosts
from vastrun.launcher.ssh.remote import SshRemote

RUN, INSTANCE = "calm-heron-3f1a", "52607650"
USUAL = ConnectTimeouts()
QUICK = ConnectTimeouts(connect_s=4.0, stall_s=4.0)
"""Where nobody answers they are waited for; a busy computer takes a while to begin a command."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One rented machine, as seen from both ends."""

    sshd: Sshd
    box: Path
    keys: KeyRing

    def shell(
        self,
        *addresses: tuple[str, int],
        read_fingerprints: Callable[[], Collection[str]] = tuple,
        env: Mapping[str, str] | None = None,
        is_gone: Callable[[], bool] = lambda: False,
        timeouts: ConnectTimeouts = USUAL,
    ) -> SshRemote:
        """A shell in the box, as a launcher that has just started makes one."""
        login = Login(
            addresses=addresses or [self.sshd.address],
            key=self.keys.pair(RUN),
            hosts=KnownHosts(self.keys.known_hosts(RUN, INSTANCE), read_fingerprints=read_fingerprints),
            user=self.sshd.user,
            timeouts=timeouts,
        )
        return SshRemote(login, root=str(self.box), env=env or {}, is_gone=is_gone)

    def shell_with(self, *tools: str, **programs: str) -> SshRemote:
        """A shell that finds these programs first, and then these tools only; without tools, all."""
        folder = self.box.with_name("tools")
        folder.mkdir()
        for tool in tools:
            path = sys.executable if tool == "python3" else shutil.which(tool)
            (folder / tool).symlink_to(path or "/missing")
        for name, text in programs.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        rest = "" if tools else f":{os.environ['PATH']}"
        return self.shell(env={"PATH": f"{folder}{rest}"})

    def change_host_key(self) -> None:
        self.sshd.stop()
        self.sshd.new_host_key()
        self.sshd.start()
