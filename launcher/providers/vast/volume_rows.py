"""Vast's rows of data volumes and of offers of them, read column by column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from launcher.gate import caps
from launcher.providers.vast.columns import (
    WHAT_A_ROW_RAISES,
    Columns,
    id_text,
    number,
    price,
    text,
)
from launcher.providers.vast.instance_row import id_of
from launcher.providers.vast.refusals import silent


@dataclass(frozen=True, kw_only=True)
class VolumeRow:
    """One volume of the account."""

    id: str
    label: str
    machine_id: str
    """Empty: not said."""
    disk_gb: float
    """0: not said."""
    status: str
    """`created` or `in-use`."""
    is_attached: bool
    """The row names instances, or says something of them that cannot be read."""

    @classmethod
    def of(cls, row: Any) -> VolumeRow:
        """Read a row. Raises UnreachableError without a readable id, label or machine: it may be ours."""
        volume_id = id_of(row)
        if volume_id is None:
            raise silent("the row of a volume cannot be read")
        columns = Columns(row)
        found = cls(
            id=volume_id,
            label=columns.read("label", _label),
            machine_id=columns.read("machine_id", id_text),
            disk_gb=max(0.0, columns.read("disk_space", number)),
            status=columns.read("status", text),
            is_attached=columns.read("instances", _has_instances),
        )
        if {"label", "machine_id"} & set(columns.unreadable):
            raise silent(f"the row of volume {volume_id} cannot be read")
        return found


@dataclass(frozen=True, kw_only=True)
class VolumeOfferRow:
    """Room for volumes on a machine."""

    id: str
    machine_id: str
    disk_gb: float
    usd_per_gb_month: float

    @classmethod
    def of(cls, row: Any) -> VolumeOfferRow | None:
        """Read a row; None where it cannot be read, or has no price."""
        offer_id = id_of(row)
        if offer_id is None:
            return None
        try:
            return cls(
                id=offer_id,
                machine_id=id_text(row.get("machine_id")),
                disk_gb=number(row.get("disk_space")),
                usd_per_gb_month=price(row.get("storage_cost")),
            )
        except WHAT_A_ROW_RAISES:
            return None


def _label(value: Any) -> str:
    """Read a label. Raises ValueError for anything but a text: whose volume it is, is unknown."""
    if not isinstance(value, str | None):
        raise ValueError("a label that is no text")
    return text(value)[: caps.LABEL_CHARACTERS]


def _has_instances(value: Any) -> bool:
    return bool(value) if isinstance(value, list | None) else True
