"""Rows of instances as Vast, its documentation and its users show them: read column by column."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.instance import Pace
from tests.emulators.vast import VastEmulator
from tests.fakes import FakeClock
from tests.launcher.providers.vast.recorded import INSTANCES
from tests.launcher.providers.vast.rentals import eventually_connects, open_market, rent
from tests.launcher.providers.vast.rows import NOW, instance, instance_row
from vastrun.launcher.core import Instance
from vastrun.launcher.core.errors import IncompleteListError, UnreachableError
from vastrun.launcher.providers.vast import VastProvider
from vastrun.launcher.providers.vast import instance_row as boot
from vastrun.launcher.providers.vast.instance_row import DirectAddresses, InstanceRow, is_destroyed, rows_in

SSH = [{"HostIp": "0.0.0.0", "HostPort": "40101"}]


@pytest.mark.parametrize("name", INSTANCES)
def test_a_recorded_row_is_read(name: str) -> None:
    recorded = INSTANCES[name]
    row = InstanceRow.of(recorded.row)
    assert (row.state, row.idle) == (recorded.state, recorded.is_idle)
    assert row.usd_per_hour == recorded.usd_per_hour
    assert [row.direct, row.proxy] == [at and tuple(at) for at in (recorded.direct, recorded.proxy)]
    assert (row.down_gb, row.up_gb) == pytest.approx((recorded.down_gb, recorded.up_gb))
    assert row.up_s == recorded.up_s
    assert is_destroyed(recorded.row) is recorded.is_gone
    assert row.unreadable == ()
    fault = boot.fault(row)
    assert (None if fault is None else fault.cause) == recorded.fault
    assert boot.may_be_reachable(row, row.rented_at + 60.0) is recorded.is_tried


@pytest.mark.parametrize(
    ("changes", "is_stopped"),
    [
        ({}, False),
        ({"cur_state": "stopped"}, False),
        ({"next_state": "stopped"}, False),
        ({"intended_status": "stopped"}, False),
        ({"cur_state": "stopped", "intended_status": "stopped"}, True),
        ({"cur_state": "stopped", "next_state": "stopped"}, True),
        ({"cur_state": "stopped", "intended_status": "stopped", "next_state": "running"}, True),
    ],
)
def test_a_machine_is_stopped_when_it_stays_so(changes: dict[str, str], is_stopped: bool) -> None:
    assert instance_row(**changes).is_stopped is is_stopped


@pytest.mark.parametrize(
    ("actual", "cur", "is_gone"),
    [
        ("destroyed", None, True),
        ("destroyed", "stopped", True),
        ("exited", "destroyed", True),
        ("destroyed", "running", False),
        ("running", "running", False),
        (None, None, False),
    ],
)
def test_a_machine_that_was_destroyed_is_gone_unless_it_may_be_billed(
    actual: str | None, cur: str | None, is_gone: bool, tmp_path: Path
) -> None:
    with VastEmulator(rate_limits=False, pace=Pace(created_s=600.0)) as vast:
        provider = open_market(vast, tmp_path)
        machine = rent(provider)
        with vast.lock:
            (one,) = vast.instances
            one.actual, one.cur = actual, cur  # type: ignore[assignment]
        assert (provider.machine(machine.id) is None) is is_gone
        assert (provider.instances() == []) is is_gone


@pytest.mark.parametrize(
    "ports",
    [
        None,
        [],
        [8080, 8081],
        {},
        {"22/tcp": None},
        {"22/tcp": [{}]},
        {"22/tcp": [None]},
        {"22/tcp": [{"HostPort": None}]},
        {"22/tcp": [{"HostPort": ""}]},
    ],
)
def test_ports_that_do_not_lead_to_ssh_are_none(ports: Any) -> None:
    row = instance_row(ports=ports)
    assert (row.direct, row.unreadable) == (None, ())


def test_the_first_port_that_is_given_counts() -> None:
    assert instance_row(ports={"22/tcp": [{"HostPort": None}, *SSH]}).direct == ("203.0.113.7", 40101)


ODD: dict[str, Any] = {
    "ports": "22",
    "ssh_port": 70000,
    "dph_base": "n/a",
    "num_gpus": [1],
    "disk_space": float("nan"),
    "cuda_max_good": "13.x",
    "uptime_mins": "long",
    "inet_up_billed": 1e300,
    "inet_down_billed": -7.0,
    "start_date": "yesterday",
    "end_date": {},
}


@pytest.mark.parametrize("column", ODD)
def test_a_value_that_makes_no_sense_hides_no_other(column: str) -> None:
    row = InstanceRow.of(instance(**{column: ODD[column] or [1]}))
    assert (row.id, row.label, row.state, row.usd_per_hour) == (
        "52607650",
        "vastrun-calm-heron-3f1a",
        "running",
        0.41,
    )
    assert row.unreadable == (column,)


def test_a_row_of_nothing_but_an_id_is_read() -> None:
    row = InstanceRow.of({"id": 7})
    assert (row.id, row.state, row.direct, row.proxy, row.unreadable) == ("7", "loading", None, None, ())


@pytest.mark.parametrize("row", [None, 7, [], {}, {"id": None}, {"id": "x"}, {"id": 1e300}, {"id": -3}])
def test_a_row_without_an_id_may_be_anybody_s(row: Any) -> None:
    with pytest.raises(UnreachableError):
        InstanceRow.of(row)


@pytest.mark.parametrize(
    ("answer", "ids"),
    [
        (None, []),
        ({"id": 1}, [1]),
        ([{"id": 1}, {"id": 2}], [1, 2]),
        ([[{"id": 1}], {"id": 2}], [1, 2]),
        ({"0": {"id": 1}, "1": {"id": 2}}, [1, 2]),
    ],
)
def test_rows_come_in_several_shapes(answer: Any, ids: list[int]) -> None:
    assert [row["id"] for row in rows_in(answer)] == ids


@pytest.mark.parametrize("fault", ["ports_list", "port_null", "port_empty", "odd_columns"])
def test_a_machine_with_an_odd_row_is_listed_and_destroyed(
    vast: VastEmulator, provider: VastProvider, fault: str
) -> None:
    machine = rent(provider)
    vast.faults.add(fault, times=99)
    assert [found.id for found in provider.instances()] == [machine.id]
    found = provider.machine(machine.id)
    assert found is not None
    assert bool(found.unreadable) is (fault == "odd_columns")
    provider.destroy(machine.id)
    assert provider.machine(machine.id) is None


def test_a_word_as_a_row_does_not_mean_that_it_is_gone(vast: VastEmulator, provider: VastProvider) -> None:
    machine = rent(provider)
    vast.faults.add("hidden_row", seconds=600)
    vast.faults.add("word_row", times=99)
    with pytest.raises(UnreachableError):
        provider.machine(machine.id)


def test_one_bad_row_hides_none_of_the_others(vast: VastEmulator, provider: VastProvider) -> None:
    machine = rent(provider)
    rent(provider)
    vast.faults.add("null_row", times=99)
    with pytest.raises(IncompleteListError) as caught:
        provider.instances()
    assert [found.id for found in caught.value.found] == [machine.id]


def test_a_machine_whose_own_row_lacks_ports_is_reached_by_those_of_the_list(tmp_path: Path) -> None:
    with VastEmulator(ports_by_id=False, rate_limits=False) as vast:
        provider = open_market(vast, tmp_path)
        vast.faults.add("proxy_refused", times=999)
        eventually_connects(provider, rent(provider))


@pytest.mark.parametrize("answer", ["direct", "without", "unreachable"])
def test_the_list_is_asked_for_a_direct_address_every_30_seconds_until_it_has_one(answer: str) -> None:
    clock, asked = FakeClock(), list[float]()
    began = clock.now()

    def listed() -> list[Any]:
        asked.append(clock.now() - began)
        if answer == "unreachable":
            raise UnreachableError("no list")
        return [instance(id=7), instance(ports=None if answer == "without" else {"22/tcp": SSH})]

    addresses, row = DirectAddresses(listed, clock.now), instance_row(ports=None)
    seen = []
    for wait_s in (0.0, 29.9, 0.1, 15.0):
        clock.sleep(wait_s)
        seen.append(addresses.with_direct(row).direct)
    if answer == "direct":
        assert (asked, seen) == ([0.0], 4 * [("203.0.113.7", 40101)])
    else:
        assert (asked, seen) == ([0.0, pytest.approx(30.0)], 4 * [None])


def test_a_row_with_an_address_or_of_a_machine_that_does_not_run_is_left_as_it_is() -> None:
    def listed() -> list[Any]:
        raise AssertionError("nobody asks")

    addresses = DirectAddresses(listed, FakeClock().now)
    for row in (
        instance_row(ports={"22/tcp": SSH}),
        instance_row(ports=None, actual_status="loading", status_msg="", cur_state="stopped"),
    ):
        assert addresses.with_direct(row) is row


def test_an_instance_has_all_that_its_row_tells() -> None:
    row = instance_row(
        uptime_mins=2.5,
        gpu_name="RTX 4090",
        num_gpus=4,
        disk_space=80.0,
        cuda_max_good=12.4,
        dph_base=0.4,
        inet_down_cost=0.01,
        inet_up_cost=0.02,
        inet_down_billed=3.0 * 1024**2,
        inet_up_billed=4.0 * 1024**2,
        inet_down=934.1,
        inet_up=912.3,
        status_msg="pulling\nsuccess, running it\n",
        min_bid="?",
        end_date="soon",
    )
    assert Instance(**{each.name: getattr(row, each.name) for each in fields(Instance)}) == Instance(
        id="52607650",
        label="vastrun-calm-heron-3f1a",
        state="running",
        usd_per_hour=0.41,
        rented_at=NOW,
        extras=row.extras,
        idle=False,
        up_s=153.0,  # the most that rounds to 2.5 minutes
        down_gb=3.0,
        up_gb=4.0,
        down_mbps=934.1,
        up_mbps=912.3,
        host="41234",
        note="success, running it",
        gpu_name="RTX 4090",
        gpus=4,
        disk_gb=80.0,
        cuda=12.4,
        unreadable=row.unreadable,
    )
    assert row.unreadable != ()
    assert row.extras.storage_usd_per_hour == pytest.approx(0.01)
    assert (row.extras.down_usd_per_gb, row.extras.up_usd_per_gb) == (0.01, 0.02)


def test_an_instance_that_only_loads_is_idle_and_one_without_a_word_has_no_note() -> None:
    row = instance_row(actual_status="loading", cur_state="", intended_status="", status_msg="", ports=None)
    assert (row.state, row.idle, row.note) == ("loading", True, "")
