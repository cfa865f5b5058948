"""Data volumes on Vast: created and attached with an instance, listed, deleted; hostile rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.emulators.limits import SPACING_S
from tests.emulators.vast import VastEmulator
from tests.emulators.volumes import RELEASE_S
from tests.launcher.providers.vast.rentals import order
from vastrun.launcher.core import ListedVolume, VolumeOrder
from vastrun.launcher.core.errors import AuthError, ProviderError, UnreachableError
from vastrun.launcher.providers.vast import VastProvider
from vastrun.launcher.providers.vast.limits import LIMITS
from vastrun.launcher.providers.vast.volumes import MOUNT_PATH, find_volume, offer_with_room, volume_info

LEDGER_LABEL = "vastrun_0123abcd_pdebench"
ROW = {
    "id": 77001,
    "label": LEDGER_LABEL,
    "status": "created",
    "machine_id": 41000,
    "type": "machine",
    "disk_space": 20.0,
    "instances": [],
    "start_date": 1790000000.0,
}
OFFER = {"id": 5011, "machine_id": 41000, "disk_space": 400.0, "storage_cost": 0.15}


def create(provider: VastProvider) -> tuple[str, ListedVolume]:
    """A machine with a new volume; its id, and the volume."""
    ordered = order(provider)
    found = provider.abilities.volumes.volume_offer(ordered.offer.host, 20)  # type: ignore[union-attr]
    assert found is not None
    wanted = VolumeOrder(label=LEDGER_LABEL, gb=20, offer_id=found.id)
    machine = provider.rent(replace(ordered, volume=wanted))
    (volume,) = provider.abilities.volumes.volumes()  # type: ignore[union-attr]
    assert volume.host == ordered.offer.host
    return machine.id, volume


def test_a_new_volume_is_asked_for_as_vast_documents_it() -> None:
    assert volume_info(VolumeOrder(label=LEDGER_LABEL, gb=20, offer_id="5011")) == {
        "volume_info": {
            "mount_path": "/root/vastrun/data",
            "create_new": True,
            "volume_id": 5011,
            "name": LEDGER_LABEL,
            "size": 20,
        }
    }
    assert volume_info(VolumeOrder(label=LEDGER_LABEL, gb=20, volume_id="77001")) == {
        "volume_info": {"mount_path": MOUNT_PATH, "create_new": False, "volume_id": 77001}
    }
    assert volume_info(None) == {}


def test_a_volume_is_in_use_until_a_moment_after_its_machine_is_gone(
    provider: VastProvider, vast: VastEmulator
) -> None:
    machine_id, volume = create(provider)
    able = provider.abilities.volumes
    assert able is not None
    assert volume.in_use and volume.label == LEDGER_LABEL and volume.gb == 20
    with pytest.raises(ProviderError, match="in use"):
        able.delete_volume(volume.id)
    provider.destroy(machine_id)
    assert able.volumes()[0].in_use
    vast.advance(RELEASE_S + 1)
    assert not able.volumes()[0].in_use
    able.delete_volume(volume.id)
    assert able.volumes() == []
    able.delete_volume(volume.id)


def test_a_machine_has_room_for_so_much_and_no_other_machine_is_offered(provider: VastProvider) -> None:
    able = provider.abilities.volumes
    assert able is not None
    host = order(provider).offer.host
    found = able.volume_offer(host, 400)
    assert found is not None and found.host == host and found.usd_per_gb_month == 0.15
    assert able.volume_offer(host, 401) is None
    assert able.volume_offer("none", 1) is None
    assert able.volume_offer("1", 1) is None


def test_a_key_that_may_not_list_volumes_is_said_to_lack_the_permission(
    provider: VastProvider, vast: VastEmulator
) -> None:
    vast.faults.add("volumes_denied")
    with pytest.raises(AuthError, match="lacks the permission"):
        provider.abilities.volumes.volumes()  # type: ignore[union-attr]


def test_calls_of_volumes_keep_the_distance_that_vast_documents() -> None:
    assert LIMITS["volumes"].seconds >= max(SPACING_S["list_volumes"], SPACING_S["create_volume"])


def test_a_row_is_read() -> None:
    expected = ListedVolume(id="77001", label=LEDGER_LABEL, host="41000", gb=20.0, in_use=False)
    assert find_volume(ROW) == expected


@pytest.mark.parametrize(
    "change",
    [
        {"id": None},
        {"id": "1; DROP TABLE"},
        {"id": -4},
        {"id": 1e40},
        {"id": [7]},
        {"label": ["vastrun"]},
        {"label": {"a": 1}},
        {"machine_id": "41000; rm -rf /"},
        {"machine_id": float("inf")},
        {"machine_id": [41000]},
    ],
    ids=str,
)
def test_a_row_of_which_cannot_be_told_whose_it_is_stops_every_answer(change: dict[str, Any]) -> None:
    with pytest.raises(UnreachableError):
        find_volume({**ROW, **change})
    for row in (None, 3, "row", [ROW]):
        with pytest.raises(UnreachableError):
            find_volume(row)


@pytest.mark.parametrize(
    ("change", "gb", "attached"),
    [
        ({"disk_space": "many"}, 0.0, False),
        ({"disk_space": float("nan")}, 0.0, False),
        ({"disk_space": -5}, 0.0, False),
        ({"disk_space": 1e300}, 0.0, False),
        ({"instances": None}, 20.0, False),
        ({"instances": "none"}, 20.0, True),
        ({"instances": {"1": 1}}, 20.0, True),
        ({"instances": [52607650]}, 20.0, True),
        ({"start_date": None}, 20.0, False),
    ],
    ids=str,
)
def test_other_values_that_make_no_sense_are_unknown_or_count_against_it(
    change: dict[str, Any], gb: float, attached: bool
) -> None:
    row = find_volume({**ROW, **change})
    assert (row.gb, row.in_use) == (gb, attached)


def test_a_status_that_is_not_known_is_in_use(provider: VastProvider, vast: VastEmulator) -> None:
    assert find_volume({**ROW, "status": {"x": 1}}).in_use
    assert find_volume({**ROW, "status": "created" * 1000}).in_use


def test_a_label_that_is_not_one_of_vastruns_is_no_volume_of_ours(
    provider: VastProvider, vast: VastEmulator
) -> None:
    create(provider)
    for label in ("mine", "vastrun_pdebench", "vastrun_0123ABCD_x", "vastrun_0123abcd_" + "x" * 60, None):
        with vast.lock:
            next(iter(vast.volumes)).label = label
        assert provider.abilities.volumes.volumes() == []  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "change",
    [
        {"storage_cost": 0},
        {"storage_cost": -1},
        {"storage_cost": None},
        {"storage_cost": "free"},
        {"storage_cost": float("nan")},
        {"id": None},
        {"disk_space": [1]},
        {"machine_id": "x"},
    ],
    ids=str,
)
def test_an_offer_without_a_price_or_a_size_is_none(change: dict[str, Any]) -> None:
    assert offer_with_room(OFFER, 1) is not None
    assert offer_with_room({**OFFER, **change}, 1) is None
    assert offer_with_room(None, 1) is None
