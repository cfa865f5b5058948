"""The market: what a search finds, and what can be rented of it."""

import pytest

from tests.emulators.asking import IMAGE, ask, offers, rent
from tests.emulators.clock import Clock
from tests.emulators.machines import Machine
from tests.emulators.vast import VastEmulator


@pytest.mark.parametrize(
    ("query", "finds"),
    [
        ({"gpu_name": {"eq": "RTX 4090"}}, True),
        ({"gpu_name": {"eq": "RTX_4090"}}, False),
        ({"gpu_ram": {"eq": 24000.0}}, False),
        ({"gpu_ram": {"gte": 23000.0, "lte": "25000"}}, True),
        ({"driver_vers": {"gte": 570000000}}, True),
        ({"cuda_max_good": {"gte": "13.0"}}, True),
        ({"datacenter": {"eq": True}}, True),
        ({"no_such_column": {"eq": 1}}, True),
        ({"id": {"gt": 0}}, False),
        ({"rented": {"eq": True}}, False),
    ],
)
def test_a_filter_finds_what_vast_would(vast: VastEmulator, query: dict, finds: bool) -> None:
    assert bool(offers(vast, **query)) is finds


def test_prices_are_those_of_the_disk_and_of_the_kind_of_offer(still: VastEmulator) -> None:
    demand = offers(still, num_gpus={"eq": 2}, allocated_storage=100)[0]
    assert demand["dph_base"] == 1.0
    assert demand["dph_total"] == pytest.approx(1.0 + 0.72 * 100 / 720)
    bid = offers(still, num_gpus={"eq": 2}, type="bid")[0]
    assert bid["dph_base"] == bid["min_bid"] == 0.6


def test_an_offer_has_another_id_after_a_while_and_the_old_one_is_unknown(still: VastEmulator) -> None:
    before = offers(still, num_gpus={"eq": 1})[0]["id"]
    still.advance(200)
    assert offers(still, num_gpus={"eq": 1})[0]["id"] == before
    still.advance(200)
    assert offers(still, num_gpus={"eq": 1})[0]["id"] != before
    status, content = ask(still, "PUT", f"/api/v0/asks/{before}/", {"image": IMAGE, "disk": 10})
    assert (status, content["error"], content["ask_id"]) == (404, "invalid_args", before)
    assert "no_such_ask" in content["msg"]


def test_a_bid_below_the_floor_leaves_a_stopped_instance_with_the_error(still: VastEmulator) -> None:
    status, content = rent(still, price=0.01)
    assert (status, content["success"]) == (200, False)
    assert still.instances.get(content["new_contract"]).cur == "stopped"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"image": None}, "invalid_args"),
        ({"disk": 4}, "invalid_args"),
        ({"label": "x" * 257}, "invalid_args"),
        ({"onstart": "x" * 4097}, "invalid_args"),
        ({"env": {"A": "x" * 32768}}, "invalid_args"),
        ({"price": 0.0001}, "invalid_price"),
    ],
)
def test_a_wrong_order_rents_nothing(still: VastEmulator, body: dict, error: str) -> None:
    status, content = rent(still, **body)
    assert (status, content["error"]) == (400, error)
    assert len(still.instances) == 0


def test_an_offer_on_a_machine_where_we_are_says_so() -> None:
    with VastEmulator([Machine(id=1, gpus=2)], clock=Clock(0), rate_limits=False) as vast:
        assert [row["rented"] for row in offers(vast, num_gpus={"eq": 1})] == [False]
        ask_id = offers(vast, num_gpus={"eq": 1})[0]["id"]
        ask(vast, "PUT", f"/api/v0/asks/{ask_id}/", {"image": IMAGE, "disk": 10})
        assert [row["rented"] for row in offers(vast, num_gpus={"eq": 1})] == [True]
