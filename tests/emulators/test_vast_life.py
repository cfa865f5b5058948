"""The life of an instance, and what befalls it. The test moves the clock."""

import pytest

from tests.emulators.asking import ask, offers, rent, row
from tests.emulators.clock import Clock
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
