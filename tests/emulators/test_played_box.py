"""A played box answers the launcher's own provider and shell as one of processes does."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulators.clock import Clock
from tests.emulators.faults import Faults
from tests.emulators.machines import Machine
from tests.emulators.played_box import PlayedBoxes
from tests.emulators.vast import VastEmulator
from tests.fakebox import Training
from tests.launcher.providers.vast.rentals import order
from tests.waiting import LONGEST_S, eventually
from vastrun.launcher.ports import Remote
from vastrun.launcher.providers.vast import VastProvider
from vastrun.launcher.providers.vast.transport import VastAccount
from vastrun.testing.setup import LEASE


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[Remote]:
    clock = Clock(20.0)
    make_box = PlayedBoxes(clock, lambda _: Training(seconds=5.0)).make
    with VastEmulator([Machine(id=41000)], clock=clock, rate_limits=False, make_box=make_box) as vast:
        account = VastAccount(key=vast.account_key, server=vast.url, login=vast.login)
        provider = VastProvider(account, tmp_path, clock=clock)
        machine = provider.rent(order(provider, env={**LEASE, "LEASE_LIFE_CAUSE": "time_limit"}))
        eventually(lambda: any(one.runs for one in vast.instances), what="a machine that runs")
        shell = provider.connect(machine)
        yield shell
        shell.close()


def test_its_files_are_written_and_read_in_parts(remote: Remote) -> None:
    remote.write("inbox/secrets.env", b"0123456789")
    assert remote.read("inbox/secrets.env", offset=3, limit=4) == b"3456"
    assert remote.read("not there") == b""


def test_its_training_begins_when_it_is_told_to_and_ends_by_its_clock(remote: Remote) -> None:
    status = "bash onstart/status.sh"
    assert '"idle"' in remote.run(status, timeout_s=LONGEST_S).stdout
    assert remote.run("bash onstart/run.sh start", timeout_s=LONGEST_S).exit_code == 0
    eventually(
        lambda: '"ended"' in remote.run(status, timeout_s=LONGEST_S).stdout, what="the end of the training"
    )
    assert b'"step"' in remote.read("run/metrics.jsonl")


def test_a_fault_may_come_again_at_every_so_many_chances() -> None:
    faults = Faults()
    faults.add("no_such_ask", after=1, every=3)
    struck = [faults.take("no_such_ask") is not None for _ in range(8)]
    assert [n for n, is_struck in zip(itertools.count(), struck, strict=False) if is_struck] == [1, 4, 7]
