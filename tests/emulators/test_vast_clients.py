"""The official SDK, unmodified, against the emulator."""

from collections.abc import Iterator
from typing import Any

import pytest
from vastai import VastAI

from tests.emulators.asking import IMAGE
from tests.emulators.machines import Machine
from tests.emulators.vast import VastEmulator
from tests.waiting import eventually


@pytest.fixture
def market() -> Iterator[VastEmulator]:
    """One machine with one GPU."""
    with VastEmulator([Machine(id=41000)], rate_limits=False) as vast:
        yield vast


def test_the_sdk_rents_watches_and_gives_back(market: VastEmulator) -> None:
    sdk = VastAI(api_key=market.account_key, server_url=market.url)
    (offer,) = sdk.search_offers(query={"num_gpus": {"eq": 1}})
    instance_id = rent_with(sdk, offer["id"])["new_contract"]
    eventually(lambda: market.instances.get(instance_id).runs)
    assert sdk.show_instance(instance_id)["extra_env"] == {"WHO": "me"}
    assert [row["id"] for row in sdk.show_instances()] == [instance_id]
    eventually(lambda: "hello me" in sdk.logs(instance_id))
    assert sdk.destroy_instance(instance_id) == {"success": True}
    assert sdk.show_instance(instance_id) is None


def rent_with(sdk: VastAI, offer_id: int) -> Any:
    """The answer to renting one offer."""
    return sdk.create_instance(
        offer_id,
        image=IMAGE,
        disk=10,
        env={"WHO": "me"},
        ssh=True,
        direct=True,
        onstart_cmd="echo hello $WHO",
        cancel_unavail=True,
    )
