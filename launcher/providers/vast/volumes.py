"""Data volumes on Vast: disks of one machine, attached to one instance at a time, charged until deleted.

A volume is created by the call that rents an instance on its machine. Vast releases it about 30 seconds after
that instance is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vastrun.contract import layout
from vastrun.launcher.core import ListedVolume, VolumeOffer, VolumeOrder, ledger_of_volume
from vastrun.launcher.core.errors import GoneError, ProviderError
from vastrun.launcher.gate import caps
from vastrun.launcher.providers.onstart import BOX
from vastrun.launcher.providers.vast.api import VastApi
from vastrun.launcher.providers.vast.columns import ROW_ERRORS, ColumnReader, id_text, number, price, text
from vastrun.launcher.providers.vast.errors import no_response_error, require_list, require_object
from vastrun.launcher.providers.vast.instance_row import id_of
from vastrun.launcher.providers.vast.sdk import json_of

if TYPE_CHECKING:
    from vastai import VastAI

MOUNT_PATH = f"/root/{BOX}/{layout.DATA}"
"""The box's data folder, so that VASTRUN_DATA is on the volume. Vast's images run as root."""
_ENDPOINT = "volumes"
_CHEAPEST = [["storage_cost", "asc"]]
_FREE = "created"
"""`status` of a volume that no instance uses."""


def volume_info(order: VolumeOrder | None) -> dict[str, Any]:
    """Return the part of a rental request about the volume; empty without one."""
    if order is None:
        return {}
    info: dict[str, Any] = {
        "mount_path": MOUNT_PATH,
        "create_new": not order.volume_id,
        "volume_id": int(order.volume_id or order.offer_id),
    }
    if not order.volume_id:
        info |= {"name": order.label, "size": order.gb}
    return {"volume_info": info}


class Volumes:
    """The HasVolumes port for one account."""

    def __init__(self, api: VastApi) -> None:
        self._api = api

    def volumes(self) -> Sequence[ListedVolume]:
        """List the volumes of all ledgers of the account."""
        found = map(find_volume, self._api.repeat(_ENDPOINT, _list, _rows_of))
        return [volume for volume in found if ledger_of_volume(volume.label) is not None]

    def volume_offer(self, host: str, gb: int) -> VolumeOffer | None:
        """Return a volume offer on that machine. Vast may ignore filters, so they are checked again."""
        if not host.isdecimal():
            return None
        query = {"machine_id": {"eq": int(host)}, "disk_space": {"gte": gb}}

        def search(sdk: VastAI) -> Any:
            return sdk.search_volumes(query=query, order=_CHEAPEST, storage=gb, no_default=True)

        offers = (offer_with_room(row, gb) for row in self._api.repeat(_ENDPOINT, search, require_list))
        found = (offer for offer in offers if offer is not None and offer.host == host)
        return min(found, key=lambda offer: offer.usd_per_gb_month, default=None)

    def delete_volume(self, volume_id: str) -> None:
        """Delete the volume; repeat until Vast accepts or has no such volume."""
        if not volume_id.isdecimal():
            raise ProviderError(f"{volume_id} is not the id of a volume of Vast's")
        try:
            answer = self._api.repeat(
                _ENDPOINT, lambda sdk: sdk.delete_volume(int(volume_id)), require_object
            )
        except GoneError:
            return
        if answer.get("success") is False:
            reason = answer.get("msg") or answer.get("error")
            raise ProviderError(f"Vast does not delete volume {volume_id}: {reason}")


def _list(sdk: VastAI) -> Any:
    # The SDK's own show_volumes fails on a row without start_date.
    return json_of(sdk.client.get("/volumes", query_args={"owner": "me", "type": "all_volume"}))


def _rows_of(answer: Any) -> list[Any]:
    return require_list(require_object(answer).get("volumes"))


def find_volume(row: Any) -> ListedVolume:
    """Parse a row. Raises UnreachableError without a valid id, label or machine: it may be this ledger's.

    A volume is in use unless Vast says that it is free, and no instance is named, or hinted at.
    """
    volume_id = id_of(row)
    if volume_id is None:
        raise no_response_error("the row of a volume cannot be read")
    columns = ColumnReader(row)
    is_attached = columns.read("instances", _has_instances)
    found = ListedVolume(
        id=volume_id,
        label=columns.read("label", _label),
        host=columns.read("machine_id", id_text),
        gb=max(0.0, columns.read("disk_space", number)),
        in_use=columns.read("status", text) != _FREE or is_attached,
    )
    if {"label", "machine_id"} & set(columns.unreadable):
        raise no_response_error(f"the row of volume {volume_id} cannot be read")
    return found


def offer_with_room(row: Any, gb: int) -> VolumeOffer | None:
    """Parse an offer; None when it is invalid, has no price or too little space."""
    offer_id = id_of(row)
    if offer_id is None:
        return None
    try:
        host, usd = id_text(row.get("machine_id")), price(row.get("storage_cost"))
        has_room = number(row.get("disk_space")) >= gb
    except ROW_ERRORS:
        return None
    return VolumeOffer(id=offer_id, host=host, usd_per_gb_month=usd) if has_room else None


def _label(value: Any) -> str:
    """Parse a label. Raises ValueError for anything but a text: the owner would be unknown."""
    if not isinstance(value, str | None):
        raise ValueError("a label that is not text")
    return text(value)[: caps.LABEL_CHARACTERS]


def _has_instances(value: Any) -> bool:
    return bool(value) if isinstance(value, list | None) else True
