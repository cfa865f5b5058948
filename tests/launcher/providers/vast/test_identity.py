"""Whether who answers is the machine that was rented: its own log says which SSH host key it has."""

import time
from pathlib import Path

import pytest

from tests.emulators.vast import VastEmulator
from tests.fakes import FakeClock
from tests.launcher.providers.vast.rentals import open_market, rent
from tests.waiting import LONGEST_S, eventually
from vastrun.launcher.core import Instance
from vastrun.launcher.core.errors import HostKeyError, UnreachableError
from vastrun.launcher.ports import ChecksIdentity, Remote
from vastrun.launcher.providers.vast import VastProvider


def first_answer(provider: VastProvider) -> Remote:
    """A shell on a new machine, once it was reached. Raises HostKeyError."""
    machine = rent(provider)
    deadline = time.monotonic() + LONGEST_S
    while True:
        try:
            remote = provider.connect(machine)
            remote.read("lease.log")
            return remote
        except HostKeyError:
            raise
        except UnreachableError:
            assert time.monotonic() < deadline, "the machine is not up"
            time.sleep(0.05)


def identity_of(remote: Remote) -> str:
    assert isinstance(remote, ChecksIdentity)
    remote.close()
    return remote.identity


def test_the_key_that_the_machine_s_log_names_is_believed(provider: VastProvider) -> None:
    assert identity_of(first_answer(provider)) == "the machine's SSH host key is the one in its log"


def test_a_man_in_the_middle_is_told_nothing(vast: VastEmulator, provider: VastProvider) -> None:
    vast.faults.add("ssh_impostor")
    with pytest.raises(HostKeyError, match="log does not name"):
        first_answer(provider)
    assert eventually(lambda: "Connection closed" in vast.impostor.log)
    assert "Accepted" not in vast.impostor.log
    assert "Failed publickey" not in vast.impostor.log


def test_without_a_readable_log_the_first_key_is_trusted(vast: VastEmulator, provider: VastProvider) -> None:
    vast.faults.add("server_error", endpoint="request_logs", times=99)
    assert "on first use: its log cannot be read (" in identity_of(first_answer(provider))


def test_a_log_that_names_no_key_is_waited_for_not_for_ever(vast: VastEmulator, tmp_path: Path) -> None:
    vast.faults.add("onstart_skipped")
    clock = FakeClock(time.time())
    provider = open_market(vast, tmp_path, clock)
    machine = rent(provider)
    assert eventually(lambda: "not name its SSH host key yet" in silence_of(provider, machine))
    clock.sleep(30.0)
    assert "folder vastrun does not exist on the machine" in silence_of(provider, machine), "it let us in"


def silence_of(provider: VastProvider, machine: Instance) -> str:
    """Why nothing can be read."""
    with pytest.raises(UnreachableError) as caught:
        provider.connect(machine).read("lease.log")
    return str(caught.value)
