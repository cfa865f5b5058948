"""The provider `local`: what is its own beside the contract that all providers keep."""

import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests import disks, parts
from tests.contract.markets import local
from tests.waiting import LONGEST_S, eventually
from vastrun.launcher.core import Instance, RentalOrder
from vastrun.launcher.core.errors import GoneError, NoOfferError, ProviderError, UnreachableError
from vastrun.launcher.core.job import Resources
from vastrun.launcher.gate.rendezvous import parse_rendezvous
from vastrun.launcher.ports import Provider
from vastrun.launcher.providers.local import LocalProvider
from vastrun.testing.setup import LEASE, ProviderSetup, RealClock, small_job


@pytest.fixture
def market(tmp_path: Path) -> ProviderSetup:
    return local(tmp_path)


@pytest.fixture
def boxes(tmp_path: Path) -> Path:
    return tmp_path / "state" / "boxes"


@pytest.fixture(autouse=True)
def _nothing_left(market: ProviderSetup) -> object:
    yield
    for instance in market.provider.instances():
        market.provider.destroy(instance.id)


def rented(market: ProviderSetup, **lease: str) -> Instance:
    return market.provider.rent(market.order("vastrun-calm-heron-3f1a", env={**LEASE, **lease}))


def lease_pid(market: ProviderSetup, instance: Instance) -> int:
    state = market.provider.connect(instance).read("lease.state").decode()
    return int(dict(line.split("=", 1) for line in state.splitlines())["pid"])


def test_a_box_does_not_see_the_launchers_secrets(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "WANDB_API_KEY": "a secret", "VAST_API_KEY": "another"}
    provider: Provider = LocalProvider(
        tmp_path / "state" / "boxes", sys.executable, clock=RealClock(), environ=environ
    )
    instance = provider.rent(local(tmp_path).order("vastrun-calm-heron-3f1a"))
    variables = provider.connect(instance).run("env", timeout_s=LONGEST_S).stdout
    assert "PATH=" in variables
    assert "secret" not in variables
    assert "another" not in variables


def test_a_box_trains_with_the_python_it_was_given(market: ProviderSetup) -> None:
    remote = market.provider.connect(rented(market))
    assert remote.run("echo $VASTRUN_PYTHON", timeout_s=LONGEST_S).stdout.strip() == sys.executable


def test_only_the_user_can_look_into_a_box(market: ProviderSetup, boxes: Path) -> None:
    instance = rented(market)
    assert (boxes / instance.id).stat().st_mode & 0o077 == 0


def test_a_box_whose_time_is_up_is_gone_without_a_launcher(market: ProviderSetup) -> None:
    # Longer than it takes to rent it and to connect, however busy the computer is.
    instance = rented(market, LEASE_LIFE_S="6", LEASE_GRACE_S="0")
    remote = market.provider.connect(instance)
    eventually(lambda: not market.provider.instances())
    with pytest.raises(GoneError):
        remote.read("lease.state")


def test_a_box_whose_lease_died_is_stopped_until_somebody_connects(market: ProviderSetup) -> None:
    instance = rented(market)
    os.kill(lease_pid(market, instance), signal.SIGKILL)
    eventually(lambda: market.provider.instances()[0].state == "stopped")
    market.provider.connect(instance)
    assert market.provider.instances() == [instance]


def test_the_lease_of_a_box_that_was_stopped_counts_from_the_first_start(market: ProviderSetup) -> None:
    instance = rented(market)
    remote = market.provider.connect(instance)
    before = remote.read("lease.state").decode().split("armed_at=")[1]
    os.kill(lease_pid(market, instance), signal.SIGKILL)
    eventually(lambda: market.provider.instances()[0].state == "stopped")
    market.provider.connect(instance)
    assert remote.read("lease.state").decode().split("armed_at=")[1] == before


def test_a_box_that_expired_while_this_computer_was_off_is_gone(market: ProviderSetup, boxes: Path) -> None:
    instance = rented(market)
    os.kill(lease_pid(market, instance), signal.SIGKILL)
    eventually(lambda: market.provider.instances()[0].state == "stopped")
    state = boxes / instance.id / "lease.state"
    state.write_text(re.sub(r"(?<=armed_at=)\d+", "1700000000", state.read_text()))

    def is_gone() -> bool:
        """The lease ends the box a moment after it was armed, or before that moment is over."""
        try:
            market.provider.connect(instance).read("lease.state")
        except GoneError:
            return True
        except UnreachableError:  # seen while its folder is being removed
            return False
        return False

    eventually(is_gone)
    eventually(lambda: not market.provider.instances())


def test_a_box_whose_folder_is_being_removed_is_unreachable(market: ProviderSetup, boxes: Path) -> None:
    instance = rented(market)
    os.kill(lease_pid(market, instance), signal.SIGKILL)
    eventually(lambda: market.provider.instances()[0].state == "stopped")
    (boxes / instance.id / "lease.sh").unlink()
    with pytest.raises(UnreachableError, match="only be destroyed"):
        market.provider.connect(instance)
    market.provider.destroy(instance.id)
    assert not market.provider.instances()


def test_a_folder_that_was_never_finished_is_no_machine_and_goes_with_the_next(
    market: ProviderSetup, boxes: Path
) -> None:
    half_made = boxes / ".calm-heron-3f1a.0000"
    half_made.mkdir(parents=True)
    assert not market.provider.instances()
    rented(market)
    assert not half_made.exists()


def test_a_half_removed_folder_is_listed_and_can_be_destroyed(market: ProviderSetup, boxes: Path) -> None:
    (boxes / "calm-heron-3f1a.0000" / "run").mkdir(parents=True)
    found = market.provider.instances()[0]
    assert found.label == "vastrun-calm-heron-3f1a"
    market.provider.destroy(found.id)
    assert not list(boxes.iterdir())


def test_a_lease_that_does_not_start_is_an_error_that_says_why(market: ProviderSetup) -> None:
    order = replace(market.order("vastrun-calm-heron-3f1a"), onstart="echo broken >&2; exit 1")
    with pytest.raises(ProviderError, match="broken"):
        market.provider.rent(order)
    assert [found.label for found in market.provider.instances()] == [order.label]


def test_destroying_ends_what_a_removed_folder_left_running(market: ProviderSetup, boxes: Path) -> None:
    instance = rented(market)
    remote = market.provider.connect(instance)
    done = remote.run("setsid sleep 60 >/dev/null 2>&1 & echo $!", timeout_s=LONGEST_S)
    os.kill(lease_pid(market, instance), signal.SIGKILL)
    (boxes / instance.id).rename(boxes.parent / "moved away")
    market.provider.destroy(instance.id)
    eventually(lambda: not Path("/proc", done.stdout.strip()).exists())


@pytest.mark.parametrize("name", ["..", "../elsewhere", "/etc", ".hidden", ""])
def test_only_boxes_can_be_destroyed(market: ProviderSetup, name: str) -> None:
    with pytest.raises(ProviderError, match="not the id"):
        market.provider.destroy(name)


def test_a_root_that_cannot_be_written_is_one_clear_error(tmp_path: Path, market: ProviderSetup) -> None:
    (tmp_path / "file").write_text("not a folder")
    provider: Provider = LocalProvider(tmp_path / "file", sys.executable, clock=RealClock())
    with pytest.raises(ProviderError, match="failed on this computer"):
        provider.rent(market.order("vastrun-calm-heron-3f1a"))


@pytest.fixture
def small_disk(tmp_path: Path, market: ProviderSetup) -> Iterator[Path]:
    """The market's boxes lie on a disk of 256 kB."""
    parts.require("disks")
    (tmp_path / "state").mkdir(exist_ok=True)
    with disks.small_disk(tmp_path / "state" / "boxes", "256k") as boxes:
        yield boxes
        for instance in market.provider.instances():
            market.provider.destroy(instance.id)


@pytest.fixture
def order(tmp_path: Path) -> RentalOrder:
    """An order that was planned while there was room."""
    return local(tmp_path / "elsewhere").order("vastrun-calm-heron-3f1a")


def fill(disk: Path) -> None:
    with (disk / ".filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while filler.write(bytes(4096)):
            pass


def test_a_file_that_does_not_fit_is_told_and_leaves_nothing(
    small_disk: Path, market: ProviderSetup, order: RentalOrder
) -> None:
    instance = market.provider.rent(order)
    remote = market.provider.connect(instance)
    remote.write("note", b"before")
    fill(small_disk)
    with pytest.raises(ProviderError, match="no space left on this computer's disk"):
        remote.write("note", bytes(1 << 16))
    assert remote.read("note") == b"before"
    assert not list((small_disk / instance.id).glob(".*.part"))


def test_renting_on_a_full_disk_is_told_and_leaves_no_machine(
    small_disk: Path, market: ProviderSetup, order: RentalOrder
) -> None:
    fill(small_disk)
    with pytest.raises(ProviderError, match="no space left on this computer's disk"):
        market.provider.rent(order)
    assert not market.provider.instances()


def test_a_full_disk_prevents_no_destroy(small_disk: Path, market: ProviderSetup, order: RentalOrder) -> None:
    instance = market.provider.rent(order)
    fill(small_disk)
    market.provider.destroy(instance.id)
    assert not market.provider.instances()


def test_what_this_computer_lacks_is_told_at_once(market: ProviderSetup) -> None:
    job = replace(small_job(), resources=Resources(gpus=8, memory_gb=1e6, disk_gb=1e7))
    with pytest.raises(NoOfferError) as raised:
        market.provider.search(job)
    for part in ("8 GPUs", "GB of memory needed", "GB of disk needed"):
        assert part in str(raised.value)


def test_tools_that_are_not_here_are_named_with_where_they_are_from(
    market: ProviderSetup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tool in ("bash", "tar"):
        (tmp_path / tool).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoOfferError, match="`local` needs setsid, flock") as caught:
        market.provider.search(small_job())
    assert "util-linux" in caught.value.hint


def test_node_0_says_where_others_reach_it_at_ports_that_the_kernel_reserves(market: ProviderSetup) -> None:
    labels = ("vastrun-calm-heron-3f1a", "vastrun-calm-heron-3f1a-n1")
    first, second = (
        market.provider.rent(replace(market.order(label, env=LEASE), nodes=labels)) for label in labels
    )
    assert second.rendezvous == ""
    host, _, port = parse_rendezvous(first).partition(":")
    assert host == "127.0.0.1"
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert int(port) + 2 < lowest
    assert market.provider.machine(first.id) == first, "it is remembered"
