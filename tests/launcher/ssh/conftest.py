"""A machine with an SSH server, and a cable to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulators.cable import Cable
from tests.emulators.sshd import Sshd
from tests.launcher.ssh.machine import QUICK, RUN, Machine
from vastrun.launcher.ssh.keys import KeyRing
from vastrun.launcher.ssh.remote import SshRemote


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """It lets the run's key in."""
    box, keys = tmp_path / "box", KeyRing(tmp_path / "keys")
    box.mkdir()
    with Sshd(tmp_path / "sshd") as sshd:
        sshd.authorize(keys.pair(RUN).public)
        yield Machine(sshd=sshd, box=box, keys=keys)


@pytest.fixture
def cable(machine: Machine) -> Iterator[Cable]:
    """Leads to the machine."""
    with Cable(machine.sshd.address) as cable:
        yield cable


@pytest.fixture
def shell(machine: Machine) -> Iterator[SshRemote]:
    """A shell on the machine itself."""
    shell = machine.shell()
    yield shell
    shell.close()


@pytest.fixture
def wired(machine: Machine, cable: Cable) -> Iterator[SshRemote]:
    """A shell at the end of the cable."""
    shell = machine.shell(cable.address, timeouts=QUICK)
    yield shell
    shell.close()
