"""Whatever a held machine says of its slots: none is made up, and no empty list is believed."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.fakes import FakeClock
from tests.hostile.lie import STEERING
from tests.hostile.slots import SLOT_LIES, SLOT_PRINTS
from tests.jobs import train_job
from tests.launcher.pool.slotted import SlottedMarket
from vastrun.launcher.core import RentalOrder, Run, errors
from vastrun.launcher.decisions.history import SpeedHistory
from vastrun.launcher.gate.box_reader import parse_slots
from vastrun.launcher.pool.provider import PoolProvider
from vastrun.testing.setup import LEASE


@pytest.fixture
def market() -> SlottedMarket:
    return SlottedMarket(FakeClock())


@pytest.fixture
def pool(market: SlottedMarket) -> PoolProvider:
    held = market.held(train_job())
    runs: Callable[[], Sequence[Run]] = lambda: [held]  # noqa: E731
    below: Any = market
    return PoolProvider(runs, lambda _name: below, lambda _p, _s: SpeedHistory(), clock=market.clock)


def order(pool: PoolProvider) -> RentalOrder:
    return RentalOrder(
        offer=pool.search(train_job())[0],
        label="vastrun-calm-heron-3f1a",
        image=None,
        disk_gb=8.0,
        onstart="#!/bin/bash\n",
        env=LEASE,
        max_usd=1.0,
    )


@pytest.mark.parametrize(
    ("attribute", "told"),
    [("says", lie) for lie in SLOT_LIES.values()] + [("printed", text) for text in SLOT_PRINTS.values()],
    ids=[*SLOT_LIES, *SLOT_PRINTS],
)
def test_a_lie_about_slots_and_what_is_no_list_is_refused_by_every_verb(
    attribute: str, told: object, market: SlottedMarket, pool: PoolProvider
) -> None:
    ordered = order(pool)
    rented = pool.rent(ordered)
    setattr(market, attribute, told)
    assert_refused(pool, ordered, rented.id)


def assert_refused(pool: PoolProvider, ordered: RentalOrder, instance_id: str) -> None:
    """No verb takes the lie for an answer, nor for the absence of one."""
    with pytest.raises(errors.BoxError, match="invalid list of slots") as error:
        pool.instances()
    assert str(error.value).isprintable()
    with pytest.raises(errors.BoxError):
        pool.machine(instance_id)
    with pytest.raises(errors.BoxError):
        pool.destroy(instance_id)
    with pytest.raises(errors.UncertainError):
        pool.rent(ordered)
    with pytest.raises(errors.NoOfferError) as no_offer:
        pool.search(train_job())
    assert str(no_offer.value).isprintable()


def test_words_of_a_machine_cannot_steer_a_terminal() -> None:
    said = parse_slots(
        '{"is_ready": true, "drained": "\\u001b[2J gone\\nwild", "faults": ["\\u202e x"],'
        ' "refused": "\\u0007"}',
        4,
    )
    assert said.drained == " gone wild".strip()
    assert all(text.isprintable() for text in (said.drained, said.refused, *said.faults))
    assert STEERING not in said.drained


def test_a_machine_that_forgets_a_slot_lets_nobody_believe_that_another_is_gone(
    market: SlottedMarket, pool: PoolProvider
) -> None:
    """It may end its own runs early: of other machines' it says nothing."""
    pool.rent(order(pool))
    market.says = lambda answer: answer.update(slots=[])
    assert not pool.instances()
    market.says = lambda _answer: None
    assert len(pool.instances()) == 1


def test_a_machine_that_is_silent_is_no_empty_list(market: SlottedMarket, pool: PoolProvider) -> None:
    pool.rent(order(pool))
    market.is_silent = True
    with pytest.raises(errors.UnreachableError):
        pool.instances()
    with pytest.raises(errors.NoOfferError, match="does not answer"):
        pool.search(train_job())


def test_a_share_of_the_price_never_comes_from_the_machine_beyond_its_own_price(
    market: SlottedMarket, pool: PoolProvider
) -> None:
    pool.rent(order(pool))
    market.says = lambda answer: answer["slots"][0].update(units=4)
    (slot,) = pool.instances()
    assert slot.usd_per_hour == market.held(train_job()).usd_per_hour


def test_a_slot_of_no_held_machine_is_no_instance(pool: PoolProvider) -> None:
    assert pool.machine("calm-heron-3f1a.0000@other-owl-0000") is None
    assert pool.machine("../../evil@held-owl-0a0a") is None
    pool.destroy("../../evil@held-owl-0a0a")


def test_instance_that_is_no_slot_cannot_be_connected_to(market: SlottedMarket, pool: PoolProvider) -> None:
    instance = pool.rent(order(pool))
    for name in ("x", "../evil.0000@held-owl-0a0a", "calm-heron-3f1a.0000@other-owl-0000"):
        with pytest.raises(errors.ProviderError):
            pool.connect(replace(instance, id=name))
