"""Parts of a computer that some tests need and not every computer has: how each is found.

A test names its parts: `@pytest.mark.needs("sshd")`; a fixture calls `require`.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

import pytest

from tests import disks
from tests.emulators import slurm, ssh_servers
from tests.launcher.ledger import postgres
from tests.launcher.ui.report import axe, chromium
from tests.trainer.distributed import networks

BASE_IMAGE = "127.0.0.1:5000/vastrun-base:bookworm"


class Part(NamedTuple):
    """`is_system`: a scheduler, a daemon, a browser: tests that need it are marked `integration`."""

    what: str
    """With its package of Debian in brackets, or the command that brings it."""
    is_here: Callable[[], bool]
    is_system: bool = False


def _has(tool: str) -> Callable[[], bool]:
    return lambda: shutil.which(tool) is not None


def _imports(module: str) -> Callable[[], bool]:
    return lambda: find_spec(module) is not None


def _docker_is_ready() -> bool:
    if find_spec("docker") is None:
        return False
    import docker

    try:
        docker.from_env(timeout=5).images.get(BASE_IMAGE)
    except docker.errors.DockerException:
        return False
    return True


PARTS: Mapping[str, Part] = {
    "gdb": Part("the debugger gdb (gdb)", _has("gdb")),
    "bats": Part("bats, which tests shell scripts (bats)", _has("bats")),
    "sshd": Part("OpenSSH's server (openssh-server)", lambda: ssh_servers.sshd() is not None),
    "terminal": Part(
        "terminals of a user's own SSH server (mount -o remount,gid=5 /dev/pts)",
        ssh_servers.may_hand_out_terminals,
    ),
    "ssh": Part("OpenSSH's client (openssh-client)", _has("ssh")),
    "rsync": Part("rsync (rsync)", _has("rsync")),
    "docker": Part(
        "a Docker daemon with the base image (tests/docker/daemon.sh start; tests/docker/base.sh)",
        _docker_is_ready,
        is_system=True,
    ),
    "postgresql": Part("PostgreSQL's server (make .venv/stamps/dev)", postgres.is_here),
    "g++": Part("a C++ compiler (g++)", _has("g++")),
    "timeout": Part("timeout of GNU's coreutils (coreutils)", _has("timeout")),
    "curl": Part("curl (curl)", _has("curl")),
    "wget": Part("wget (wget)", _has("wget")),
    "chromium": Part("Chromium (chromium)", lambda: chromium.program() is not None, is_system=True),
    "axe": Part("axe-core (make .venv/stamps/dev)", axe.is_here),
    "mkdocs": Part("mkdocs (make docs)", _imports("material")),
    "slurm": Part("Slurm's daemons and commands (slurm-wlm)", slurm.is_here, is_system=True),
    "networks": Part("root's right to make networks (iproute2)", networks.may_be_made),
    "apprise": Part("the package apprise (make .venv/stamps/dev)", _imports("apprise")),
    "hydra": Part("the package hydra-core (make .venv/stamps/dev)", _imports("hydra")),
    "mlflow": Part("the package mlflow-skinny (make .venv/stamps/dev)", _imports("mlflow")),
    "prometheus": Part(
        "the package prometheus-client (make .venv/stamps/dev)", _imports("prometheus_client")
    ),
    "disks": Part("a right to mount small disks (be root)", disks.may_be_made),
    "mounts": Part("root's right to mount small disks (be root)", disks.may_be_mounted),
}


@cache
def is_here(name: str) -> bool:
    """Looked for once."""
    return PARTS[name].is_here()


def require(name: str) -> None:
    """Skip the test that runs when the part is missing; in CI, fail it."""
    if is_here(name):
        return
    reason = f"this computer lacks {PARTS[name].what}"
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
