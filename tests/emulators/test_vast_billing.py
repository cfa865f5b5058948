"""The bill: what is charged for what, and when it can be seen."""

from __future__ import annotations

import json
import socket
from urllib.parse import quote

import pytest

from tests.emulators.asking import ask, rent, row
from tests.emulators.machines import Machine
from tests.emulators.test_vast_life import put, rented
from tests.emulators.vast import VastEmulator
from tests.waiting import LONGEST_S, eventually

HOUR_S = 3600


def charges(vast: VastEmulator) -> dict:
    """What the API says was charged."""
    days = quote(json.dumps({"day": {"gte": 0, "lte": int(vast.clock.now()) + 86400}}))
    return ask(vast, "GET", f"/api/v0/charges/?select_filters={days}&format=table&limit=100")[1]


def test_the_gpu_is_billed_by_the_second_while_it_runs_and_the_disk_always(still: VastEmulator) -> None:
    instance_id = rented(still, disk=100)
    meter = still.billing.meters[instance_id]
    still.advance(HOUR_S)
    put(still, instance_id, state="stopped")
    still.advance(0.5)
    gpus, seconds = row(still, instance_id)["num_gpus"], meter.gpu_seconds
    assert seconds == pytest.approx(HOUR_S, abs=1)
    assert meter.usd("gpu") == pytest.approx(seconds / HOUR_S * 0.5 * gpus)
    still.advance(HOUR_S)
    assert meter.gpu_seconds == seconds
    assert meter.usd("disk") == pytest.approx((2 * HOUR_S + 1.5) / HOUR_S * 0.72 * 100 / 720, rel=1e-6)


def test_loading_costs_no_gpu(still: VastEmulator) -> None:
    still.faults.add("slow_loading", seconds=HOUR_S)
    instance_id = rent(still)[1]["new_contract"]
    still.advance(HOUR_S)
    assert row(still, instance_id)["instance"]["gpuCostPerHour"] == 0
    assert still.billing.meters[instance_id].usd("gpu") == 0


def test_the_credit_goes_down_by_what_is_billed(still: VastEmulator) -> None:
    rented(still)
    still.advance(10 * HOUR_S)
    credit = ask(still, "GET", "/api/v0/users/current")[1]["credit"]
    assert credit == pytest.approx(100 - still.billing.total_usd())
    assert still.billing.total_usd() > 5


def test_a_changed_bid_is_the_price_from_then_on(still: VastEmulator) -> None:
    instance_id = rented(still, price=1.0)
    still.advance(HOUR_S)
    before = still.billing.meters[instance_id].usd("gpu")
    ask(still, "PUT", f"/api/v0/instances/bid_price/{instance_id}/", {"client_id": "me", "price": 2.0})
    still.advance(HOUR_S)
    assert still.billing.meters[instance_id].usd("gpu") - before == pytest.approx(2.0)


def test_charges_lag_and_end_up_as_the_whole_bill(still: VastEmulator) -> None:
    instance_id = rented(still, label="mine")
    still.advance(HOUR_S)
    ask(still, "DELETE", f"/api/v0/instances/{instance_id}/", {})
    assert charges(still)["results"] == []
    still.advance(5)
    answer = charges(still)
    (charge,) = answer["results"]
    assert (answer["count"], answer["total"], answer["next_token"]) == (1, 1, None)
    assert (charge["source"], charge["metadata"]) == (f"instance-{instance_id}", {"label": "mine"})
    assert charge["amount"] == pytest.approx(still.billing.total_usd(instance_id))
    assert {item["type"] for item in charge["items"]} == {"gpu", "disk"}
    still.advance(HOUR_S)
    assert charges(still)["results"][0]["amount"] == charge["amount"]


def test_charges_want_a_day(vast: VastEmulator) -> None:
    status, content = ask(vast, "GET", "/api/v0/charges/")
    assert (status, content["error"]) == (400, "invalid_request")


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
        assert meter.usd("bwd") == pytest.approx(16 / 1e9 * 0.002)
