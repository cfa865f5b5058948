"""The bill: GPU by the second while it runs, disk from create to destroy, bandwidth by the byte.

What is charged is told as Vast tells it: one row for each machine and UTC day, with three decimals.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.emulators.account import Account
from tests.emulators.clock import Clock

HOUR_S = 3600.0
DAY_S = 86400.0
_NAMES = {"gpu": "GPU", "disk": "disk", "bwd": "0.0 GB Downloaded", "bwu": "0.0 GB Uploaded"}
TAIL_S = (-22.0, 290.0)
"""When billing ended, in seconds after the DELETE, in 34 recorded rentals."""


def recorded_tails(seed: int) -> Callable[[], float]:
    """Draws of when billing ends."""
    chance = Random(seed)
    return lambda: chance.uniform(*TAIL_S)


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
    tail_usd: float = 0.0
    """What was billed for the time after its end, or given back of that before."""
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
        due = 0.0
        while self.read_at < now:
            since, midnight = self.read_at, (self.read_at // DAY_S + 1) * DAY_S
            self.read_at = min(now, midnight)
            due += self._charge(since, self.read_at)
        return due

    def end(self, now: float, tail_s: float) -> float:
        """What it costs beyond now, or less than until now, as its billing ends so much later or earlier."""
        gpu_seconds = self.gpu_seconds
        self.tail_usd = self.read(now + tail_s) if tail_s > 0 else self._give_back(now, -tail_s)
        self.gpu_seconds = gpu_seconds  # it ran no longer than it lived
        self.gpu_on = self.disk_on = False
        return self.tail_usd

    def _charge(self, since: float, until: float) -> float:
        seconds, due = until - since, 0.0
        if self.gpu_on:
            self.gpu_seconds += seconds
            due += self._add("gpu", since, until, seconds * self.rates.gpu_usd_per_hour / HOUR_S)
        if self.disk_on:
            due += self._add("disk", since, until, seconds * self.rates.disk_usd_per_hour / HOUR_S)
        return due

    def _give_back(self, now: float, seconds: float) -> float:
        due = 0.0
        for kind, is_on, usd_per_hour in (
            ("gpu", self.gpu_on, self.rates.gpu_usd_per_hour),
            ("disk", self.disk_on, self.rates.disk_usd_per_hour),
        ):
            if is_on:
                due += self._add(kind, now, now, -min(self.usd(kind), seconds * usd_per_hour / HOUR_S))
        return due

    def read_traffic(self, received: int, sent: int) -> float:
        """What the bytes since the last reading cost; both are totals."""
        down, up = received - self.received, sent - self.sent
        self.received, self.sent = received, sent
        now = self.read_at
        return self._add("bwd", now, now, down / 1024**3 * self.rates.down_usd_per_gb) + self._add(
            "bwu", now, now, up / 1024**3 * self.rates.up_usd_per_gb
        )

    def _add(self, kind: str, start: float, end: float, amount: float) -> float:
        if amount:
            item = self.items.setdefault((kind, int(start // 60.0)), Item(kind, start, end))
            item.end = max(item.end, end)
            item.amount += amount
        return amount


class Billing:
    """All meters, and the list of charges that lags behind them."""

    def __init__(
        self, account: Account, clock: Clock, *, lag_s: float, tail_s: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._account = account
        self._clock = clock
        self._lag_s = lag_s
        self.tail_s = tail_s
        """Draws how long after its end a machine is billed, in seconds."""
        self.meters: dict[int, Meter] = {}
        self.others: list[dict[str, Any]] = []
        """Rows of what is no machine."""

    def open(self, meter: Meter) -> Meter:
        """The meter runs from its `read_at` on."""
        self.meters[meter.instance_id] = meter
        return meter

    def read(self, meter: Meter, now: float, received: int, sent: int) -> None:
        """The account has paid for all until now."""
        self._account.credit -= meter.read(now) + meter.read_traffic(received, sent)

    def end(self, meter: Meter, now: float, received: int, sent: int) -> None:
        """The machine is gone, and its billing ends."""
        self.read(meter, now, received, sent)
        self._account.credit -= meter.end(now, self.tail_s())

    def total_usd(self, instance_id: int | None = None) -> float:
        """What everything cost so far, or one instance; without lag."""
        if instance_id is not None:
            return self.meters[instance_id].total_usd
        return sum(meter.total_usd for meter in self.meters.values())

    @property
    def tails_usd(self) -> float:
        """What was billed for the time after the ends of machines."""
        return sum(meter.tail_usd for meter in self.meters.values())

    def charges(self, first: float, last: float, kinds: Sequence[str]) -> Sequence[dict[str, Any]]:
        """The rows that are settled, of the days whose midnights are in between; of all kinds if none is
        named."""
        machines = (row for meter in self.meters.values() for row in self._rows(meter))
        return [
            row
            for row in (*machines, *self.others)
            if first <= row["start"] <= last and row["type"] in (kinds or [row["type"]])
        ]

    def _rows(self, meter: Meter) -> Sequence[dict[str, Any]]:
        settled = self._clock.now() - self._lag_s
        by_day: dict[int, list[Item]] = {}
        for item in meter.items.values():
            if item.end <= settled:
                by_day.setdefault(int(item.start // DAY_S * DAY_S), []).append(item)
        return [
            {
                "start": day,
                "end": day,
                "type": "instance",
                "source": f"instance-{meter.instance_id}",
                "description": f"Instance {meter.instance_id} Charges - 1 day",
                "amount": _amount(items),
                "metadata": {"label": meter.label},
                "items": [_line(kind, day, items) for kind in _NAMES],
            }
            for day, items in by_day.items()
        ]


def _line(kind: str, day: int, items: Sequence[Item]) -> dict[str, Any]:
    return {
        "start": day,
        "end": day,
        "type": kind,
        "source": None,
        "description": _NAMES[kind],
        "amount": _amount([item for item in items if item.type == kind]),
        "metadata": {},
        "items": [],
    }


def _amount(items: Sequence[Item]) -> float:
    return round(sum(item.amount for item in items), 3)
