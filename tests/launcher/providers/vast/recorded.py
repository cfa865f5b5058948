"""What others recorded of Vast (recordings/SOURCES.md), and what it means; keys and accounts are replaced."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from vastrun.launcher.core import errors
from vastrun.launcher.core.errors import VastrunError

_FOLDER = Path(__file__).with_name("recordings")


def _loaded(file: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = yaml.safe_load((_FOLDER / file).read_text(encoding="utf-8"))
    return found


@dataclass(frozen=True, kw_only=True)
class RecordedOffer:
    """A recorded row, what is read of it, and the verdict for jobs that ask for such resources."""

    row: Mapping[str, Any]
    fields: Mapping[str, Any]
    """Attributes of its OfferRow."""
    fails: Mapping[str, Sequence[str]]
    """Limits that it fails, by the job of JOBS; the first is what removes it. None: it is left."""
    seen_at: float
    """Epoch seconds, between its contract's begin and end."""


JOBS: Mapping[str, Mapping[str, Any]] = {
    "RTX 4090": {"gpu_names": ("RTX_4090",)},
    "A100 of 40 GB": {"gpu_names": ("A100 SXM4",), "gpu_memory_gb": 40},
    "A100 of 80 GB": {"gpu_names": ("A100 SXM4",), "gpu_memory_gb": 80},
    "8 A100 with NVLink": {"gpus": 8, "gpu_names": ("A100_SXM4",), "nvlink": True, "disk_gb": 500},
    "datacenter": {"datacenter": True},
    "fixed address": {"static_ip": True, "up_mbps": 500, "cpu_cores": 8},
    "fast disk": {"disk_mbps": 1000},
}
"""Resources of the jobs. All of them ask for the default reliability of 0.95."""

OFFERS: Mapping[str, RecordedOffer] = {
    name: RecordedOffer(**offer) for name, offer in _loaded("offers.yaml").items()
}


@dataclass(frozen=True, kw_only=True)
class RecordedInstance:
    """A recorded row and how it is to be read."""

    row: Mapping[str, Any]
    state: str
    is_idle: bool
    usd_per_hour: float = 0.0
    direct: Sequence[Any] | None = None
    proxy: Sequence[Any] | None = None
    down_gb: float = 0.0
    up_gb: float = 0.0
    up_s: float | None = None
    is_gone: bool = False
    """Its machine was destroyed."""
    fault: str | None = None
    """Cause of its failed start."""
    is_tried: bool = False
    """Whether SSH is tried a minute after its start."""


INSTANCES: Mapping[str, RecordedInstance] = {
    name: RecordedInstance(**instance) for name, instance in _loaded("instances.yaml").items()
}


@dataclass(frozen=True, kw_only=True)
class RecordedAnswer:
    """An HTTP answer, and the error that it is; None: a success."""

    body: Mapping[str, Any]
    status: int = 200
    error: type[VastrunError] | None = None
    text: str = ""
    """What the error says of it."""
    retry_after_s: float | None = None


def _answer(*, error: str | None = None, **content: Any) -> RecordedAnswer:
    return RecordedAnswer(error=error and getattr(errors, error), **content)


_RECORDED = _loaded("answers.yaml")
CREATES: Mapping[str, tuple[RecordedAnswer, str]] = {
    name: (_answer(**content), machine)
    for name, content in _RECORDED["creates"].items()
    for machine in [content.pop("machine", "")]
}
"""Answers to a create, with the id of the machine that is then rented."""
REFUSALS: Mapping[str, RecordedAnswer] = {
    name: _answer(**content) for name, content in _RECORDED["refusals"].items()
}


def recorded_offers(*, bid: bool = False) -> list[dict[str, Any]]:
    """The market of 2026-08-17, 08:40 UTC: 1,343 verified offers on demand, recorded by gpu-radar.

    The rows are as a search returns them: on demand, or as offers to bid for. They have 18 columns, rounded:
    an offer's id stands for its machine's, and prices are without a disk of our own.
    """
    return [_row(values, bid=bid) for values in _rows_of("market-2026-08-17.csv")]


def whole_offers() -> list[dict[str, Any]]:
    """Further 26 offers, with all columns as they were sent, for 5 GB of disk; `seen_at`: epoch seconds."""
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
