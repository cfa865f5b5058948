"""Parts of a computer that some tests need and not every computer has: how each is found, and what brings it.

A test names its parts: `@pytest.mark.needs("sshd")`; a fixture calls `require`.
"""

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

import pytest

from tests import disks
from tests.emulators import slurm, ssh_servers
from tests.launcher.ledger import postgres
from tests.launcher.ui.report import axe, chromium
from tests.trainer.distributed import networks

BASE_IMAGE = "127.0.0.1:5000/vastrun-base:bookworm"
_AS_ROOT = "sudo make test" if os.geteuid() else "docker run --privileged …, or a computer of your own"
"""Root in a container may lack the right, too."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """`brings`: the command, on Debian and on macOS; None: this system cannot have it.

    `is_system`: a scheduler, a daemon, a browser: tests that need it are marked `integration`.
    """

    what: str
    is_here: Callable[[], bool]
    debian: str
    macos: str | None = None
    is_system: bool = False

    @property
    def brings(self) -> str:
        """The command for this computer."""
        return self.macos or "needs Linux" if sys.platform == "darwin" else self.debian

    @property
    def reason(self) -> str:
        """Why a test was skipped; `lines` knows it again."""
        return f"this computer lacks {self.what}"


def _has(tool: str) -> Callable[[], bool]:
    return lambda: shutil.which(tool) is not None


def _docker_is_ready() -> bool:
    if find_spec("docker") is None:
        return False
    import docker

    try:
        docker.from_env(timeout=5).images.get(BASE_IMAGE)
    except docker.errors.DockerException:
        return False
    return True


def _package(module: str, name: str) -> Part:
    """Return a Python package of the extra `dev`."""
    return Part(
        what=f"the package {name}",
        is_here=lambda: find_spec(module) is not None,
        debian="make .venv/stamps/dev",
        macos="make .venv/stamps/dev",
    )


PARTS: Mapping[str, Part] = {
    "gdb": Part(what="the debugger gdb", is_here=_has("gdb"), debian="sudo apt-get install gdb"),
    "sshd": Part(
        what="OpenSSH's server",
        is_here=lambda: ssh_servers.sshd() is not None,
        debian="sudo apt-get install openssh-server",
    ),
    "terminal": Part(
        what="terminals that a user's own SSH server may hand out",
        is_here=ssh_servers.may_hand_out_terminals,
        debian="sudo mount -o remount,gid=5 /dev/pts",
    ),
    "ssh": Part(what="OpenSSH's client", is_here=_has("ssh"), debian="sudo apt-get install openssh-client"),
    "rsync": Part(
        what="rsync", is_here=_has("rsync"), debian="sudo apt-get install rsync", macos="brew install rsync"
    ),
    "docker": Part(
        what="a Docker daemon with the base image",
        is_here=_docker_is_ready,
        debian="sudo tests/docker/daemon.sh start && sudo tests/docker/base.sh",
        is_system=True,
    ),
    "postgresql": Part(
        what="PostgreSQL's server",
        is_here=postgres.is_here,
        debian="make .venv/stamps/dev",
        macos="make .venv/stamps/dev",
    ),
    "g++": Part(
        what="a C++ compiler",
        is_here=_has("g++"),
        debian="sudo apt-get install g++",
        macos="xcode-select --install",
    ),
    "timeout": Part(
        what="timeout, of GNU's coreutils",
        is_here=_has("timeout"),
        debian="sudo apt-get install coreutils",
        macos="brew install coreutils",
    ),
    "curl": Part(what="curl", is_here=_has("curl"), debian="sudo apt-get install curl"),
    "wget": Part(
        what="wget", is_here=_has("wget"), debian="sudo apt-get install wget", macos="brew install wget"
    ),
    "chromium": Part(
        what="Chromium",
        is_here=lambda: chromium.program() is not None,
        debian="sudo apt-get install chromium",
        macos="brew install --cask chromium",
        is_system=True,
    ),
    "axe": Part(
        what="axe-core", is_here=axe.is_here, debian="make .venv/stamps/dev", macos="make .venv/stamps/dev"
    ),
    "mkdocs": Part(
        what="mkdocs",
        is_here=lambda: find_spec("material") is not None,
        debian="make docs",
        macos="make docs",
    ),
    "slurm": Part(
        what="Slurm's daemons and commands",
        is_here=slurm.is_here,
        debian="sudo apt-get install slurm-wlm",
        is_system=True,
    ),
    "networks": Part(
        what="network namespaces, which are root's",
        is_here=networks.may_be_made,
        debian=_AS_ROOT if shutil.which("ip") else "sudo apt-get install iproute2",
    ),
    "apprise": _package("apprise", "apprise"),
    "hydra": _package("hydra", "hydra-core"),
    "mlflow": _package("mlflow", "mlflow-skinny"),
    "prometheus": _package("prometheus_client", "prometheus-client"),
    "disks": Part(what="a right to mount small disks", is_here=disks.may_be_made, debian=_AS_ROOT),
    "mounts": Part(what="root's right to mount small disks", is_here=disks.may_be_mounted, debian=_AS_ROOT),
}


@cache
def is_here(name: str) -> bool:
    """Looked for once."""
    return PARTS[name].is_here()


def require(name: str) -> None:
    """Skip the test that runs when the part is missing; in CI, fail it."""
    if is_here(name):
        return
    part = PARTS[name]
    if os.environ.get("CI"):
        pytest.fail(f"{part.reason}: {part.brings}", pytrace=False)
    pytest.skip(part.reason)


def lines(reasons: Iterable[str]) -> Sequence[str]:
    """Given why each test was skipped, one line for each part that is missing, and for each other reason."""
    parts = {part.reason: part for part in PARTS.values()}
    counts = Counter(reason.removeprefix("Skipped: ") for reason in reasons)
    return [
        _line(parts[reason], count) if reason in parts else f"{_tests(count)} skipped: {reason}"
        for reason, count in counts.most_common()
    ]


def _line(part: Part, count: int) -> str:
    return f"{_tests(count)} skipped without {part.what}; to run them: {part.brings}"


def _tests(count: int) -> str:
    return "1 test" if count == 1 else f"{count} tests"
