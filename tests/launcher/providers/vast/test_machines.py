"""Machines that are ours: listed, reached, ended, and never read as gone when they are not."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.emulators.machines import Machine
from tests.emulators.vast import VastEmulator
from tests.fakes import FakeClock
from tests.launcher.providers.vast import rentals
from tests.waiting import eventually
from vastrun.launcher.core import Cause, Instance
from vastrun.launcher.core.errors import AuthError, GoneError, ProviderError, UnreachableError
from vastrun.launcher.package_files import onstart_dir
from vastrun.launcher.providers.vast import VastProvider
from vastrun.launcher.providers.vast.account import charges_of
from vastrun.launcher.providers.vast.instance_row import OFFLINE_S
from vastrun.testing.setup import LEASE


def test_machines_of_others_are_not_ours(vast: VastEmulator, provider: VastProvider) -> None:
    provider.rent(rentals.order(provider, label="somebody-else"))
    assert not provider.instances()


@pytest.mark.slow
def test_every_page_of_the_list_is_read(tmp_path: Path) -> None:
    machines = [Machine(id=number) for number in range(41000, 41030)]
    with VastEmulator(machines, rate_limits=False) as vast:
        provider = rentals.open_market(vast, tmp_path)
        ids = {rentals.rent(provider).id for _ in range(27)}
        assert {machine.id for machine in provider.instances()} == ids


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("empty_list", "a list of 0 instances that counts 1"),
        ("not_json", "not JSON"),
        ("server_error", "HTTP 500 internal: Internal server error"),
        ("no_answer", "Remote end closed connection|Connection aborted"),
    ],
)
def test_a_list_that_cannot_be_had_is_never_an_empty_list(
    vast: VastEmulator, provider: VastProvider, fault: str, text: str
) -> None:
    rentals.rent(provider)
    vast.faults.add(fault, times=99, endpoint=None if fault == "empty_list" else "list_instances")
    with pytest.raises(UnreachableError, match=text):
        provider.instances()


def test_a_list_is_requested_again_after_a_short_fault(vast: VastEmulator, provider: VastProvider) -> None:
    machine = rentals.rent(provider)
    vast.faults.add("bad_gateway", endpoint="list_instances")
    assert [found.id for found in provider.instances()] == [machine.id]


def queries(provider: VastProvider, machine: Instance) -> Sequence[Callable[[], object]]:
    """Calls whose answers are more than nothing."""
    wanted = rentals.order(provider)
    return (
        lambda: provider.search(rentals.job()),
        provider.instances,
        lambda: provider.machine(machine.id),
        provider.account_status,
        lambda: provider.rent(wanted),
    )


@pytest.mark.parametrize("fault", ["null_answer", "list_answer", "text_answer"])
def test_an_answer_of_another_type_is_none(vast: VastEmulator, provider: VastProvider, fault: str) -> None:
    machine = rentals.rent(provider)
    for call in (
        *queries(provider, machine),
        lambda: provider.destroy(machine.id),
        lambda: charges_of(provider.api, 0.0, 1.0),
    ):
        vast.faults.add(fault, times=99)
        with pytest.raises(ProviderError):
            call()
        vast.faults.clear()


@pytest.mark.parametrize("fault", ["null_answer", "list_answer", "text_answer"])
def test_one_answer_of_another_type_is_a_fault_that_passes(
    vast: VastEmulator, provider: VastProvider, fault: str
) -> None:
    for call in queries(provider, rentals.rent(provider)):
        vast.faults.add(fault)
        assert call()
        assert vast.faults.struck[-1] == fault


def test_a_machine_that_the_list_omits_exists_by_its_id(vast: VastEmulator, provider: VastProvider) -> None:
    machine = rentals.rent(provider)
    vast.faults.add("hidden_row", seconds=1e9)
    assert provider.instances() == []
    found = provider.machine(machine.id)
    assert found is not None
    assert found.label == machine.label
    provider.destroy(machine.id)
    assert provider.machine(machine.id) is None


def test_a_machine_whose_label_was_changed_is_there_by_its_id_and_opens_with_its_run_s_key(
    vast: VastEmulator, provider: VastProvider
) -> None:
    machine = rentals.rent(provider)
    with vast.lock:
        vast.instances.get(int(machine.id)).label = "my own words"
    assert provider.instances() == []
    found = provider.machine(machine.id)
    assert found is not None
    rentals.eventually_connects(provider, machine)


def test_a_malformed_row_hides_no_machine(vast: VastEmulator, provider: VastProvider) -> None:
    machine = rentals.rent(provider)
    vast.faults.add("malformed_row", times=2)
    assert [found.id for found in provider.instances()] == [machine.id]


@pytest.mark.parametrize("fault", ["invalid_key", "two_factor"])
def test_a_rejected_key_is_not_read_as_gone(vast: VastEmulator, provider: VastProvider, fault: str) -> None:
    machine = rentals.rent(provider)
    for call in (provider.instances, lambda: provider.connect(machine), lambda: provider.destroy(machine.id)):
        vast.faults.add(fault)
        with pytest.raises(AuthError):
            call()


def test_a_destroy_is_sent_again_after_a_short_fault(vast: VastEmulator, provider: VastProvider) -> None:
    machine = rentals.rent(provider)
    vast.faults.add("bad_gateway_done", endpoint="destroy")
    provider.destroy(machine.id)
    assert not provider.instances()


def test_a_box_that_is_gone_is_told_so(provider: VastProvider) -> None:
    machine = rentals.rent(provider)
    provider.destroy(machine.id)
    with pytest.raises(GoneError):
        provider.connect(machine)


def test_stop_for_lack_of_credit_is_told_from_a_lost_bid(vast: VastEmulator, provider: VastProvider) -> None:
    vast.faults.add("credit_zero")
    machine = provider.rent(rentals.order(provider, rentals.job(interruptible=True)))
    assert "credit is used up" in str(rentals.eventually_refused(provider, machine))


def test_a_host_that_stays_offline_is_lost_unless_it_returns(vast: VastEmulator, tmp_path: Path) -> None:
    clock = FakeClock(time.time())
    provider = rentals.open_market(vast, tmp_path, clock)
    machine = rentals.rent(provider)
    rentals.show(vast, machine, "offline")
    provider.connect(machine)
    rentals.show(vast, machine, "running")
    clock.sleep(OFFLINE_S)
    provider.connect(machine)
    rentals.show(vast, machine, "offline")
    provider.connect(machine)
    clock.sleep(OFFLINE_S - 1)
    provider.connect(machine)
    clock.sleep(1)
    with pytest.raises(ProviderError, match="offline for 5 min") as caught:
        provider.connect(machine)
    assert caught.value.cause is Cause.LOST


def test_a_stop_that_nobody_here_asked_for_is_a_loss(vast: VastEmulator, provider: VastProvider) -> None:
    machine = rentals.rent(provider)
    rentals.show(vast, machine, "running")
    with vast.lock:
        vast.instances.get(int(machine.id)).state("exited", "stopped", "stopped")
    assert rentals.eventually_refused(provider, machine).cause is Cause.LOST


@pytest.mark.parametrize("fault", [None, "onstart_by_sh"])
def test_a_machine_to_which_nothing_is_shipped_ends_itself(
    vast: VastEmulator, provider: VastProvider, fault: str | None
) -> None:
    if fault:
        vast.faults.add(fault)
    lease = (onstart_dir() / "lease.sh").read_text(encoding="utf-8")
    env = {**LEASE, "LEASE_SHIP_S": "1", "VASTRUN_PROVIDER": "vast"}
    provider.rent(rentals.order(provider, onstart=lease, env=env))
    assert provider.instances()
    assert eventually(lambda: not provider.instances())


def test_the_key_of_a_machine_is_forgotten_with_its_run(
    vast: VastEmulator, provider: VastProvider, tmp_path: Path
) -> None:
    machine = rentals.rent(provider)
    rentals.eventually_connects(provider, machine)
    assert [path.name for path in (tmp_path / "keys").iterdir()] == ["calm-heron-3f1a"]
    provider.destroy(machine.id)
    assert list((tmp_path / "keys").iterdir()), "another machine of the run may be there"
    provider.forget("calm-heron-3f1a")
    assert not list((tmp_path / "keys").iterdir())
