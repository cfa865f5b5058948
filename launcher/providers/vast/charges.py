"""What Vast charged: its list of charges, each of a machine, within bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from launcher.core import Charge
from launcher.providers.vast.api import VastApi
from launcher.providers.vast.rows import charge_of

_DAY_S = 86400.0
_IDENTITY = ("source", "type", "start", "end", "amount")


def charges_of(api: VastApi, since: float, until: float) -> Sequence[Charge]:
    """Vast counts in whole days: the one before and the one after are asked for, too."""
    charges: dict[object, Charge] = {}
    for number, row in enumerate(api.charges(since - _DAY_S, until + _DAY_S)):
        charge = charge_of(row)
        # A list that grows while its pages are read shows a row twice.
        charges[_identity(row) if charge.instance_id else number] = charge
    return list(charges.values())


def _identity(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(row.get(column)) for column in _IDENTITY)
