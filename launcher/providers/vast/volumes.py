"""Data volumes on Vast: disks of one machine, attached to one instance at a time, charged until deleted.

A volume is created by the call that rents an instance on its machine. Vast releases it about 30 seconds after
that instance is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from launcher.core import ListedVolume, VolumeOffer, VolumeOrder, ledger_of_volume
from launcher.core.errors import GoneError, ProviderError
from launcher.providers.onstart import BOX
from launcher.providers.vast.api import VastApi
from launcher.providers.vast.refusals import list_of, object_of
from launcher.providers.vast.volume_rows import VolumeOfferRow, VolumeRow
from trainer.contract import layout

if TYPE_CHECKING:
    from vastai import VastAI

MOUNT_PATH = f"/root/{BOX}/{layout.DATA}"
"""The box's data folder, so that VASTRUN_DATA is the volume. Vast's images run as root."""
_ENDPOINT = "volumes"
_CHEAPEST = [["storage_cost", "asc"]]
_FREE = "created"
"""`status` of a volume that no instance uses."""


def volume_info(order: VolumeOrder | None) -> dict[str, Any]:
    """Return what a request to rent says of the volume; nothing for a rental without one."""
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
    """The volumes of one account. `HasVolumes` says what each verb promises."""

    def __init__(self, api: VastApi) -> None:
        self._api = api

    def volumes(self) -> Sequence[ListedVolume]:
        """List those of all ledgers of the account."""
        rows = map(VolumeRow.of, self._api.repeat(_ENDPOINT, _list, _rows_of))
        return [
            ListedVolume(
                id=row.id,
                label=row.label,
                host=row.machine_id,
                gb=row.disk_gb,
                in_use=row.status != _FREE or row.is_attached,
            )
            for row in rows
            if ledger_of_volume(row.label) is not None
        ]

    def volume_offer(self, host: str, gb: int) -> VolumeOffer | None:
        """Ask for that machine's offers. Vast may ignore the filters: they are checked again."""
        if not host.isdecimal():
            return None
        query = {"machine_id": {"eq": int(host)}, "disk_space": {"gte": gb}}

        def search(sdk: VastAI) -> Any:
            return sdk.search_volumes(query=query, order=_CHEAPEST, storage=gb, no_default=True)

        rows = filter(None, map(VolumeOfferRow.of, self._api.repeat(_ENDPOINT, search, list_of)))
        found = [row for row in rows if row.machine_id == host and row.disk_gb >= gb]
        if not found:
            return None
        best = min(found, key=lambda row: row.usd_per_gb_month)
        return VolumeOffer(id=best.id, host=host, usd_per_gb_month=best.usd_per_gb_month)

    def delete_volume(self, volume_id: str) -> None:
        """Ask until Vast agreed, or says that there is none."""
        if not volume_id.isdecimal():
            raise ProviderError(f"{volume_id} is not the id of a volume of Vast's")
        try:
            answer = self._api.repeat(_ENDPOINT, lambda sdk: sdk.delete_volume(int(volume_id)), object_of)
        except GoneError:
            return
        if answer.get("success") is False:
            reason = answer.get("msg") or answer.get("error")
            raise ProviderError(f"Vast does not delete volume {volume_id}: {reason}")


def _list(sdk: VastAI) -> Any:
    # The SDK's own show_volumes fails on a row without start_date.
    answer = sdk.client.get("/volumes", query_args={"owner": "me", "type": "all_volume"})
    answer.raise_for_status()
    return answer.json()


def _rows_of(answer: Any) -> list[Any]:
    return list_of(object_of(answer).get("volumes"))
