"""The bill: what is charged for what, and when it can be seen."""

import json
import socket
from typing import Any
from urllib.parse import quote

import pytest

from tests.emulators.asking import ask, rent, row
from tests.emulators.clock import Clock
from tests.emulators.machines import Machine
from tests.emulators.test_vast_life import rented
from tests.emulators.vast import VastEmulator
from tests.waiting import LONGEST_S, eventually

HOUR_S = 3600


def charges(vast: VastEmulator, **asked: Any) -> dict:
    """What the API says was charged."""
    days = quote(json.dumps({"day": {"gte": 0, "lte": int(vast.clock.now()) + 86400}}))
    query = "".join(f"&{name}={value}" for name, value in asked.items())
    return ask(vast, "GET", f"/api/v0/charges/?select_filters={days}&format=table{query}")[1]


def test_the_gpu_is_billed_by_the_second_while_it_runs_and_the_disk_always(still: VastEmulator) -> None:
    instance_id = rented(still, disk=100)
    meter = still.billing.meters[instance_id]
    still.advance(HOUR_S)
    still.faults.add("container_exits")
    still.advance(0.5)
    gpus, seconds = row(still, instance_id)["num_gpus"], meter.gpu_seconds
    assert seconds == pytest.approx(HOUR_S, abs=1)
    assert meter.usd("gpu") == pytest.approx(seconds / HOUR_S * 0.5 * gpus)
    still.advance(HOUR_S)
    assert meter.gpu_seconds == seconds
    assert meter.usd("disk") == pytest.approx((2 * HOUR_S + 1.5) / HOUR_S * 0.72 * 100 / 720, rel=1e-6)


def test_a_changed_bid_is_the_price_from_then_on(still: VastEmulator) -> None:
    instance_id = rented(still, price=0.4)
    still.advance(HOUR_S)
    before = still.billing.meters[instance_id].usd("gpu")
    ask(still, "PUT", f"/api/v0/instances/bid_price/{instance_id}/", {"client_id": "me", "price": 0.45})
    still.advance(HOUR_S)
    assert still.billing.meters[instance_id].usd("gpu") - before == pytest.approx(0.45)


def test_a_bid_costs_no_more_than_the_gpus_on_demand(still: VastEmulator) -> None:
    instance_id = rented(still, price=7.0)
    gpus, gpu_usd = row(still, instance_id)["num_gpus"], row(still, instance_id)["dph_base"]
    still.advance(HOUR_S)
    assert gpu_usd == gpus * 0.5
    assert still.billing.meters[instance_id].usd("gpu") == pytest.approx(gpu_usd, rel=0.01)


def test_each_day_is_a_row_that_begins_and_ends_at_its_midnight() -> None:
    midnight = 1_786_924_800
    with VastEmulator([Machine(id=1)], clock=Clock(0, began=midnight - HOUR_S), rate_limits=False) as vast:
        instance_id = rent(vast)[1]["new_contract"]
        vast.advance(2 * HOUR_S)
        ask(vast, "DELETE", f"/api/v0/instances/{instance_id}/", {})
        vast.advance(5)
        rows = charges(vast)["results"]
        assert [(row["start"], row["end"]) for row in rows] == [
            (midnight - 86400, midnight - 86400),
            (midnight, midnight),
        ]
        assert sum(row["amount"] for row in rows) == pytest.approx(vast.billing.total_usd(), abs=0.001)
        assert rows[0]["amount"] == pytest.approx(rows[1]["amount"], rel=0.01)


@pytest.mark.parametrize("day", [None, {"gte": 0}, {"lte": 2_000_000_000}])
def test_charges_want_the_first_and_the_last_day(vast: VastEmulator, day: dict | None) -> None:
    filters = quote(json.dumps({} if day is None else {"day": day}))
    recorded = {"success": False, "msg": "Must provide both 'day' gte and lte filters for instance charges"}
    for path in (f"/api/v0/charges/?select_filters={filters}", "/api/v0/charges/"):
        assert ask(vast, "GET", path) == (400, recorded)


def test_charges_come_by_twenty_and_a_page_that_nobody_was_given_is_refused(still: VastEmulator) -> None:
    still.billing.others += [volume(number) for number in range(25)]
    first = charges(still)
    assert len(first["results"]) == 20
    second = charges(still, after_token=first["next_token"])
    assert (len(second["results"]), second["next_token"]) == (5, None)
    assert charges(still, after_token="nonsense")["error"] == "invalid_token"


def volume(number: int) -> dict[str, Any]:
    """What a volume cost on one day."""
    day = {"start": 1_786_924_800, "end": 1_786_924_800}
    return {**day, "type": "volume", "source": f"volume-{number}", "amount": 0.4, "metadata": {}, "items": []}


@pytest.mark.parametrize("tail_s", [-22.0, 0.0, 290.0])
def test_billing_may_end_before_the_machine_or_long_after_it(still: VastEmulator, tail_s: float) -> None:
    instance_id = rented(still)
    still.advance(HOUR_S)
    meter = still.billing.meters[instance_id]
    before, usd_per_s = meter.total_usd, meter.usd_per_second
    still.billing.tail_s = lambda: tail_s
    ask(still, "DELETE", f"/api/v0/instances/{instance_id}/", {})
    still.advance(HOUR_S)
    assert meter.total_usd - before == pytest.approx(tail_s * usd_per_s)


def test_a_machine_that_never_ran_is_not_given_back_more_than_it_cost(still: VastEmulator) -> None:
    still.billing.tail_s = lambda: -22.0
    still.faults.add("slow_loading", seconds=HOUR_S)
    instance_id = rent(still)[1]["new_contract"]
    still.advance(10)
    ask(still, "DELETE", f"/api/v0/instances/{instance_id}/", {})
    still.advance(10)
    assert still.billing.meters[instance_id].total_usd == pytest.approx(0.0)


def test_tails_are_drawn_from_what_was_recorded_and_from_the_seed() -> None:
    drawn = []
    for seed in (1, 1, 2):
        with VastEmulator([Machine(id=1)], seed=seed, tails=True, rate_limits=False) as vast:
            drawn.append([vast.billing.tail_s() for _ in range(200)])
    assert drawn[0] == drawn[1] != drawn[2]
    assert -22 <= min(drawn[0]) < 0 < 250 < max(drawn[0]) <= 290


def test_bytes_through_the_ports_are_billed_both_ways() -> None:
    with VastEmulator([Machine(id=1)], rate_limits=False) as vast:
        instance_id = rent(vast)[1]["new_contract"]
        eventually(lambda: row(vast, instance_id)["ports"])
        with socket.create_connection(
            ("127.0.0.1", row(vast, instance_id)["ssh_port"]), timeout=LONGEST_S
        ) as line:
            assert line.recv(4) == b"SSH-"
            line.sendall(b"SSH-2.0-a_test\r\n")
        meter = vast.billing.meters[instance_id]
        eventually(lambda: meter.usd("bwu") > 0 and meter.usd("bwd") > 0)
        assert meter.usd("bwd") == pytest.approx(16 / 1024**3 * 0.002)
