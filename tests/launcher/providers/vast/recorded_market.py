"""The market of 2026-08-17, 08:40 UTC: 1,343 verified offers on demand, recorded by gpu-radar.

It has 18 columns, rounded: an offer's id stands for its machine's, and prices are without a disk of our own.
Further 26 offers have all columns with units, as they were sent (recordings/SOURCES.md).
"""

import csv
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "recordings"


def recorded_offers(*, bid: bool = False) -> list[dict[str, Any]]:
    """The rows as a search returns them: on demand, or as offers to bid for."""
    return [_row(values, bid=bid) for values in _rows_of("market-2026-08-17.csv")]


def whole_offers() -> list[dict[str, Any]]:
    """The offers that were recorded as they were sent, for 5 GB of disk; `seen_at`: epoch seconds."""
    recorded = (
        ("offers-2026-06-03.csv", 1_780_473_626.0, {"gpu_name": "A100 SXM4", "compute_cap": 800}),
        ("offers-2026-09-16.csv", 1_789_517_885.0, {"gpu_name": "RTX 4090", "compute_cap": 890}),
    )
    common = {"verification": "verified", "rentable": True, "rented": False, "is_bid": False}
    return [
        common | gpu | {"seen_at": seen_at} | {name: _value(name, value) for name, value in row.items()}
        for file, seen_at, gpu in recorded
        for row in _rows_of(file)
    ]


def _rows_of(file: str) -> list[dict[str, str]]:
    with (_FOLDER / file).open(encoding="utf-8", newline="") as opened:
        return list(csv.DictReader(opened))


def _value(name: str, value: str) -> Any:
    return value if name in ("gpu_name", "geolocation") else float(value) if value else None


def _row(values: dict[str, str], *, bid: bool) -> dict[str, Any]:
    row: dict[str, Any] = {name: _value(name, value) for name, value in values.items() if name != "static_ip"}
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
