"""What every provider promises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.contract.markets import MAKERS, Market, small_job
from vastrun.launcher.core import Instance
from vastrun.launcher.core.errors import GoneError, NoOfferError
from vastrun.launcher.core.job import Resources
from vastrun.launcher.providers import PROVIDERS


def unmetered(instances: Sequence[Instance]) -> Sequence[Instance]:
    """The machines without what grows while they run."""
    return [replace(instance, up_s=None, down_gb=0.0, up_gb=0.0) for instance in instances]


def test_every_registered_provider_meets_the_contract() -> None:
    assert set(PROVIDERS) <= set(MAKERS)


def test_a_job_that_fits_gets_an_offer_with_a_price_and_a_host(market: Market) -> None:
    offer = market.provider.search(small_job())[0]
    assert offer.usd_per_hour >= 0
    assert offer.host
    assert offer.description


@pytest.mark.real
def test_a_job_that_fits_nowhere_gets_no_offer(market: Market) -> None:
    impossible = replace(small_job(), resources=Resources(gpus=64, gpu_memory_gb=10_000))
    try:
        assert not market.provider.search(impossible)
    except NoOfferError as error:
        assert "64 GPUs" in str(error)


def test_searching_rents_nothing(market: Market) -> None:
    market.provider.search(small_job())
    assert not market.provider.instances()


def test_free_says_whether_its_offers_cost_nothing(market: Market) -> None:
    assert market.provider.free == (market.offer().usd_per_hour == 0)


def test_a_rented_machine_is_as_it_was_ordered_and_every_launcher_sees_it(market: Market) -> None:
    order = market.order("vastrun-calm-heron-3f1a")
    instance = market.provider.rent(order)
    assert instance.label == "vastrun-calm-heron-3f1a"
    assert instance.usd_per_hour == order.offer.usd_per_hour
    assert instance.rented_at > 0
    for launcher in (market.provider, market.again()):
        assert unmetered(launcher.instances()) == unmetered([instance])
    state = market.provider.connect(instance).read("lease.state")
    assert b"state=armed" in state.splitlines()


def test_renting_twice_makes_two_machines_of_which_one_can_be_destroyed(market: Market) -> None:
    first = market.provider.rent(market.order("vastrun-calm-heron-3f1a"))
    second = market.provider.rent(market.order("vastrun-calm-heron-3f1a"))
    assert first.id != second.id
    assert {found.id for found in market.provider.instances()} == {first.id, second.id}

    market.provider.destroy(first.id)
    market.provider.destroy(first.id)  # twice is no error

    assert unmetered(market.provider.instances()) == unmetered([second])
    with pytest.raises(GoneError):
        market.provider.connect(first)


def test_destroying_what_never_was_is_no_error(market: Market) -> None:
    market.provider.destroy("nothing-0000.0000")


def test_another_launcher_can_destroy_a_machine(market: Market, instance: Instance) -> None:
    market.again().destroy(instance.id)
    assert not market.provider.instances()
