"""The bill: GPU by the second while it runs, disk from create to destroy, bandwidth by the byte."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.emulators.account import Account
from tests.emulators.clock import Clock

HOUR_S = 3600.0
DAY_S = 86400.0
_BUCKET_S = 60.0
_NAMES = {"gpu": "GPU", "disk": "Storage", "bwd": "Download", "bwu": "Upload"}
_LIMIT = 500


@dataclass
class Rates:
    """What an instance costs now."""

    gpu_usd_per_hour: float
    disk_usd_per_hour: float
    down_usd_per_gb: float
    up_usd_per_gb: float


@dataclass
class Item:
    """A piece of the bill."""

    type: str
    start: float
    end: float
    amount: float = 0.0


@dataclass
class Meter:
    """One instance's bill. Outlives it."""

    instance_id: int
    label: str | None
    gpu_name: str
    rates: Rates
    read_at: float
    gpu_on: bool = False
    disk_on: bool = True
    gpu_seconds: float = 0.0
    received: int = 0
    sent: int = 0
    items: dict[tuple[str, int], Item] = field(default_factory=dict)

    @property
    def total_usd(self) -> float:
        """All of it so far."""
        return sum(item.amount for item in self.items.values())

    @property
    def usd_per_second(self) -> float:
        """What it costs now, without traffic."""
        gpu = self.rates.gpu_usd_per_hour if self.gpu_on else 0.0
        return (gpu + (self.rates.disk_usd_per_hour if self.disk_on else 0.0)) / HOUR_S

    def usd(self, kind: str) -> float:
        """Of one kind: gpu, disk, bwd or bwu."""
        return sum(item.amount for item in self.items.values() if item.type == kind)

    def read(self, now: float) -> float:
        """What the time since the last reading costs."""
        since, self.read_at = self.read_at, now
        seconds = now - since
        due = 0.0
        if self.gpu_on:
            self.gpu_seconds += seconds
            due += self._add("gpu", since, now, seconds * self.rates.gpu_usd_per_hour / HOUR_S)
        if self.disk_on:
            due += self._add("disk", since, now, seconds * self.rates.disk_usd_per_hour / HOUR_S)
        return due

    def read_traffic(self, received: int, sent: int) -> float:
        """What the bytes since the last reading cost; both are totals."""
        down, up = received - self.received, sent - self.sent
        self.received, self.sent = received, sent
        now = self.read_at
        return self._add("bwd", now, now, down / 1e9 * self.rates.down_usd_per_gb) + self._add(
            "bwu", now, now, up / 1e9 * self.rates.up_usd_per_gb
        )

    def _add(self, kind: str, start: float, end: float, amount: float) -> float:
        if amount > 0:
            item = self.items.setdefault((kind, int(start // _BUCKET_S)), Item(kind, start, end))
            item.end = max(item.end, end)
            item.amount += amount
        return amount


class Billing:
    """All meters, and the list of charges that lags behind them."""

    def __init__(self, account: Account, clock: Clock, *, lag_s: float) -> None:
        self._account = account
        self._clock = clock
        self._lag_s = lag_s
        self.meters: dict[int, Meter] = {}

    def open(self, meter: Meter) -> Meter:
        """The meter runs from its `read_at` on."""
        self.meters[meter.instance_id] = meter
        return meter

    def read(self, meter: Meter, now: float, received: int, sent: int) -> None:
        """The account has paid for all until now."""
        self._account.credit -= meter.read(now) + meter.read_traffic(received, sent)

    def total_usd(self, instance_id: int | None = None) -> float:
        """What everything cost so far, or one instance; without lag."""
        if instance_id is not None:
            return self.meters[instance_id].total_usd
        return sum(meter.total_usd for meter in self.meters.values())

    def charges(self, filters: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
        """The rows that are settled, of the days asked for."""
        day = filters["day"]
        first = float(day.get("gte", 0)) // DAY_S * DAY_S
        last = float(day.get("lte", self._clock.now() + DAY_S))
        kinds = filters.get("type", {}).get("in") or ["instance"]
        if "instance" not in kinds:
            return []
        rows = (self._charge(meter, first, last) for meter in self.meters.values())
        return [row for row in rows if row]

    def _charge(self, meter: Meter, first: float, last: float) -> dict[str, Any] | None:
        settled = self._clock.now() - self._lag_s
        items = [item for item in meter.items.values() if item.end <= settled and first <= item.start <= last]
        if not items:
            return None
        start, end = min(item.start for item in items), max(item.end for item in items)
        source = f"instance-{meter.instance_id}"
        return {
            "start": start,
            "end": end,
            "type": "instance",
            "source": source,
            "description": f"Instance {meter.instance_id} ({meter.gpu_name})",
            "amount": sum(item.amount for item in items),
            "metadata": {"label": meter.label},
            "items": [_line(kind, items) for kind in _NAMES if any(item.type == kind for item in items)],
        }


def _line(kind: str, items: Sequence[Item]) -> dict[str, Any]:
    ours = [item for item in items if item.type == kind]
    return {
        "start": min(item.start for item in ours),
        "end": max(item.end for item in ours),
        "type": kind,
        "source": None,
        "description": _NAMES[kind],
        "amount": sum(item.amount for item in ours),
        "metadata": {},
        "items": [],
    }
