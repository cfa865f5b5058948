"""The market of 2026-08-17, 08:40 UTC: 1,343 verified offers on demand, recorded by gpu-radar.

It has 18 columns, rounded: an offer's id stands for its machine's, and prices are without a disk of our own.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

_FILE = Path(__file__).parent / "recordings" / "market-2026-08-17.csv"
_TEXTS = ("gpu_name", "geolocation")


def recorded_offers(*, bid: bool = False) -> list[dict[str, Any]]:
    """The rows as a search returns them: on demand, or as offers to bid for."""
    with _FILE.open(encoding="utf-8", newline="") as file:
        return [_row(values, bid=bid) for values in csv.DictReader(file)]


def _row(values: dict[str, str], *, bid: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        name: value if name in _TEXTS else float(value) if value else None
        for name, value in values.items()
        if name != "static_ip"
    }
    price = row["min_bid"] if bid else row["dph_total"]
    return row | {
        "machine_id": row["id"],
        "static_ip": values["static_ip"] == "True",
        "reliability": row["reliability2"],
        "verification": "verified",
        "dph_base": price,
        "dph_total": price,
        "is_bid": bid,
        "end_date": None,
    }
