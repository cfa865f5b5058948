"""The life of an instance, and what befalls it. The test moves the clock."""

import pytest

from tests.emulators.asking import ask, offers, rent, row
from tests.emulators.clock import Clock
from tests.emulators.dead_ends import DEAD_ENDS
from tests.emulators.machines import Machine
from tests.emulators.vast import VastEmulator


def rented(vast: VastEmulator, **body: object) -> int:
    """The id of an instance that runs."""
    instance_id: int = rent(vast, **body)[1]["new_contract"]
    vast.advance(1)
    assert row(vast, instance_id)["actual_status"] == "running"
    return instance_id


def states(vast: VastEmulator, instance_id: int) -> tuple[str | None, str, str]:
    """What the row says of actual_status, cur_state and intended_status."""
    seen = row(vast, instance_id)
    return seen["actual_status"], seen["cur_state"], seen["intended_status"]


def test_it_can_be_seen_at_once_then_loads_then_runs(still: VastEmulator) -> None:
    instance_id = rent(still, label="mine", env={"A": "b", "-p 8000:8000": "1"})[1]["new_contract"]
    seen = row(still, instance_id)
    assert states(still, instance_id) == (None, "running", "running")
    assert (seen["label"], seen["ports"], seen["direct_port_start"]) == ("mine", None, -1)
    assert isinstance(seen["start_date"], float)
    still.advance(0.2)
    assert states(still, instance_id) == ("loading", "running", "running")
    still.advance(0.5)
    seen = row(still, instance_id)
    assert seen["actual_status"] == "running"
    assert seen["status_msg"].startswith("success, running pytorch_pytorch_2.13.0")
    assert set(seen["ports"]) == {"22/tcp", "8000/tcp"}
    assert ["A", "b"] in seen["extra_env"]


def test_the_pull_tells_of_its_layers(still: VastEmulator) -> None:
    instance_id = rent(still)[1]["new_contract"]
    told = []
    for _ in range(6):
        still.advance(0.1)
        told.append(row(still, instance_id)["status_msg"])
    assert len(set(told)) > 4
    assert all(text.endswith("\n") for text in told if text)


def test_a_log_can_be_fetched_without_a_key_some_time_after_it_was_asked_for(still: VastEmulator) -> None:
    instance_id = rented(still)
    answer = ask(still, "PUT", f"/api/v0/instances/request_logs/{instance_id}/", {})[1]
    path = answer["result_url"].removeprefix(still.url)
    assert ask(still, "GET", path, key=None)[0] == 404
    still.advance(0.3)
    assert ask(still, "GET", path, key=None)[0] == 200


@pytest.mark.parametrize("fault", DEAD_ENDS)
def test_an_instance_that_never_runs_says_why(still: VastEmulator, fault: str) -> None:
    still.faults.add(fault)
    instance_id = rent(still)[1]["new_contract"]
    still.advance(7200)
    seen, end = row(still, instance_id), DEAD_ENDS[fault]
    assert (seen["actual_status"], seen["cur_state"], seen["intended_status"]) == (
        end.actual,
        end.cur,
        end.intended,
    )
    assert still.billing.meters[instance_id].usd("gpu") == 0
    assert still.billing.meters[instance_id].usd("disk") > 0


def test_on_demand_takes_the_gpu_from_a_bid_and_is_never_outbid(still: VastEmulator) -> None:
    bidder = rented(still, price=0.9)
    both = next(offer["id"] for offer in offers(still) if offer["num_gpus"] == 2)
    ask(still, "PUT", f"/api/v0/asks/{both}/", {"image": "x", "disk": 10})
    still.advance(1)
    assert states(still, bidder) == ("exited", "stopped", "stopped")
    demand = next(one.id for one in still.instances if one.id != bidder)
    still.faults.add("outbid")
    still.advance(60)
    assert states(still, demand) == ("running", "running", "running")


def test_without_credit_everything_stops_and_disks_are_billed_on() -> None:
    with VastEmulator(
        [Machine(id=1, gpu_usd=3600.0, storage_usd=0.0)], clock=Clock(0), rate_limits=False, credit_usd=10.0
    ) as vast:
        instance_id = rent(vast)[1]["new_contract"]
        vast.advance(3600)
        assert states(vast, instance_id) == ("exited", "stopped", "stopped")
        assert vast.billing.total_usd() == pytest.approx(10.0)
        status, content = rent(vast)
        assert (status, content["error"]) == (400, "insufficient_credit")


def test_at_the_end_of_its_contract_it_stops_for_good(still: VastEmulator) -> None:
    instance_id = rented(still)
    still.advance(11 * 86400)
    assert states(still, instance_id) == ("exited", "stopped", "stopped")


@pytest.mark.parametrize(
    ("fault", "actual"),
    [
        ("host_offline", "offline"),
        ("no_heartbeat", "unknown"),
        ("frozen", "frozen"),
        ("contract_end", "exited"),
    ],
)
def test_what_befalls_a_running_instance_shows(still: VastEmulator, fault: str, actual: str) -> None:
    instance_id = rented(still)
    still.faults.add(fault, instance_id=instance_id, seconds=30)
    still.advance(20)
    assert row(still, instance_id)["actual_status"] == "running"
    still.advance(20)
    assert row(still, instance_id)["actual_status"] == actual


@pytest.mark.parametrize(
    ("fault", "seconds", "seen"),
    [
        ("destroy_ignored", [0, 100], [True, True]),
        ("destroy_delayed", [0, 4, 2], [True, True, False]),
        ("row_reappears", [0, 1.5, 2], [False, True, False]),
    ],
)
def test_destroy_can_be_late(still: VastEmulator, fault: str, seconds: list[float], seen: list[bool]) -> None:
    instance_id = rented(still)
    still.faults.add(fault)
    assert ask(still, "DELETE", f"/api/v0/instances/{instance_id}/", {})[0] == 200
    looks = []
    for step in seconds:
        still.advance(step)
        looks.append(row(still, instance_id) is not None)
    assert looks == seen


@pytest.mark.parametrize(
    ("fault", "column", "value"),
    [
        ("wrong_gpu", "gpu_name", "GTX 1080"),
        ("fewer_gpus", "num_gpus", 0),
        ("small_disk", "disk_space", 5.0),
        ("old_driver", "cuda_max_good", 11.4),
        ("higher_price", "dph_base", 0.75),
        ("status_lag", "actual_status", "exited"),
        ("no_ports", "ports", None),
        ("malformed_row", "extra_env", None),
    ],
)
def test_a_row_can_differ_from_its_offer(still: VastEmulator, fault: str, column: str, value: object) -> None:
    still.faults.add(fault)
    ask_id = offers(still, num_gpus={"eq": 1})[0]["id"]
    answer = ask(still, "PUT", f"/api/v0/asks/{ask_id}/", {"image": "x", "disk": 10, "runtype": "ssh_direc"})
    still.advance(1)
    assert row(still, answer[1]["new_contract"])[column] == value
