"""Workstations of this computer: real SSH servers on loopback ports, each with its own keys and folder."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from vastrun_ssh_machines import SshMachinesProvider
from vastrun_ssh_machines.machines_file import VARIABLE

from vastrun.launcher.ssh.connection import ConnectTimeouts
from vastrun.testing.setup import RealClock, provider_context

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
QUICK = ConnectTimeouts(connect_s=3.0, stall_s=10.0)
_CONFIG = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
MaxStartups 100
"""


@dataclass
class LabMachine:
    """One workstation: an SSH server, and the row that names it in the file."""

    folder: Path
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        for key in ("host_key", "id_ed25519"):
            make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / key)]
            subprocess.run(make, check=True)
        shutil.copy(self.folder / "id_ed25519.pub", self.folder / "authorized_keys")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.start()

    @property
    def boxes(self) -> Path:
        return self.folder / "boxes"

    @property
    def row(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "host": "127.0.0.1",
            "port": self.port,
            "user": getpass.getuser(),
            "key": str(self.folder / "id_ed25519"),
            "folder": str(self.boxes),
            "python": sys.executable,
            "slots": 2,
            **self.options,
        }

    @property
    def fingerprint(self) -> str:
        words = ["ssh-keygen", "-l", "-f", str(self.folder / "host_key.pub")]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()[1]

    def start(self) -> None:
        assert SSHD is not None
        config = self.folder / "sshd_config"
        config.write_text(_CONFIG.format(port=self.port, folder=self.folder))
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # it refuses to start without
        with (self.folder / "sshd.log").open("ab") as log:
            words = [SSHD, "-f", str(config), "-D", "-e"]
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while True:
            with socket.socket() as plug:
                if plug.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert time.monotonic() < deadline, (self.folder / "sshd.log").read_text()
            time.sleep(0.02)

    def go_silent(self) -> None:
        """The server and its connections are gone; what runs in boxes goes on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        for pid in _below(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()


def _below(pid: int) -> list[int]:
    """Processes of the server for its connections, and no others."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
            if Path(f"/proc/{child}/comm").read_text().startswith("sshd"):
                found += [*_below(child), child]
    return found


@dataclass
class Lab:
    """Workstations, and the file that lists them."""

    folder: Path
    machines: Sequence[LabMachine]

    def provider(self) -> SshMachinesProvider:
        """Make one as a launcher does, with short time limits."""
        file = self.folder / "machines.yaml"
        file.write_text(yaml.safe_dump({"machines": [machine.row for machine in self.machines]}))
        return SshMachinesProvider(file, self.folder / "state", clock=RealClock(), timeouts=QUICK)

    def close(self) -> None:
        for machine in self.machines:
            machine.go_silent()


def make_lab(folder: Path, **options: Mapping[str, Any]) -> Lab:
    if SSHD is None:
        pytest.skip("OpenSSH's server is not installed")
    return Lab(folder, [LabMachine(folder / name, name, values) for name, values in options.items()])


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Two workstations with four GPUs each."""
    gpus = {"gpus": 4, "gpu_name": "RTX 4090", "gpu_memory_gb": 24, "memory_gb": 64, "cores": 8}
    lab = make_lab(tmp_path_factory.mktemp("lab"), ada={**gpus, "slots": 3}, turing=gpus)
    yield lab
    for machine in lab.provider().instances():
        lab.provider().destroy(machine.id)
    lab.close()


@pytest.fixture
def of_environment(lab: Lab) -> SshMachinesProvider:
    """The provider as the launcher's registry makes it."""
    lab.provider()
    return SshMachinesProvider.of(
        provider_context(lab.folder, **{VARIABLE: str(lab.folder / "machines.yaml")})
    )
