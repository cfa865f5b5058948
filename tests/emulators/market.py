"""The market: which slices of which machines are on offer, to whom, and who holds which GPUs."""

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.emulators.clock import Clock
from tests.emulators.machines import DAY_S, Machine
from tests.emulators.offer_rows import offer_row
from tests.emulators.query import matches, sort_key

DEFAULT_LIMIT = 64
"""How many offers a search answers with that names no limit."""
DEFAULT_STORAGE_GB = 8.0
"""For how much disk a search prices that names none; the SDK names 5 itself."""
REISSUE_S = 300.0
"""How long an offer keeps its id."""
_NOT_FILTERS = frozenset(
    {"order", "type", "limit", "allocated_storage", "disable_bundling", "target_reliability", "extra_ids"}
    | {"template_id", "show_incompatible", "select_cols", "client_id", "q"}
)
_SCORE_NOISE = 0.02


@dataclass(frozen=True, kw_only=True)
class Ask:
    """An offer: some GPUs of a machine, under an id that does not last."""

    id: int
    machine: Machine
    gpus: int
    issued_at: float


@dataclass(frozen=True, kw_only=True)
class Holding:
    """GPUs that an instance has. `bid_usd` is None for on-demand."""

    machine_id: int
    gpus: int
    bid_usd: float | None


class Market:
    """Machines, asks and holdings. Whoever took a GPU from instance N holds it as -N."""

    def __init__(self, machines: Sequence[Machine], clock: Clock, *, seed: int = 0) -> None:
        self.machines = {machine.id: machine for machine in machines}
        self.began_at = clock.now()
        self._clock = clock
        self._chance = random.Random(seed)
        self._ids = itertools.count(50751794)
        self._asks: dict[int, Ask] = {}
        self._current: dict[tuple[int, int], int] = {}
        self._taken: set[int] = set()
        self._holdings: dict[int, Holding] = {}

    def search(
        self,
        query: Mapping[str, Any],
        *,
        rented: frozenset[int],
        filtering: bool = True,
        capped: bool = False,
        underscores: bool = False,
    ) -> list[dict[str, Any]]:
        """Rows of the offers that fit, in order. `rented` are the machines on which we have an instance.

        `capped`: a limit above the default is ignored. `underscores`: names of GPUs have no spaces.
        """
        kind = query.get("type") or "on-demand"
        storage_gb = float(query.get("allocated_storage") or DEFAULT_STORAGE_GB)
        rows = [
            self._row(ask, kind, storage_gb, rented=ask.machine.id in rented)
            for machine in self.machines.values()
            for ask in self._asks_of(machine, kind)
        ]
        if underscores:
            rows = [{**row, "gpu_name": row["gpu_name"].replace(" ", "_")} for row in rows]
        if filtering:
            filters = {column: wanted for column, wanted in query.items() if column not in _NOT_FILTERS}
            rows = [row for row in rows if matches(_searchable(row), filters)]
        for column, direction in reversed(query.get("order") or [["score", "desc"]]):
            rows.sort(key=sort_key(column, reverse=direction == "desc"), reverse=direction == "desc")
        limit = int(query.get("limit") or DEFAULT_LIMIT)
        return rows[: min(limit, DEFAULT_LIMIT) if capped else limit]

    def ask(self, ask_id: int) -> Ask | None:
        """The offer of that id, for as long as the id lasts."""
        ask = self._asks.get(ask_id)
        return ask if ask and self._clock.now() - ask.issued_at <= REISSUE_S + 60.0 else None

    def take(self, ask: Ask) -> None:
        """The offer is rented: what is left of its machine is on offer under another id."""
        self._taken.add(ask.id)
        self._current.pop((ask.machine.id, ask.gpus), None)

    def is_taken(self, ask_id: int) -> bool:
        """Whether the offer was rented."""
        return ask_id in self._taken

    def asks(self) -> Sequence[Ask]:
        """Every offer that was made so far."""
        return list(self._asks.values())

    def end_date(self, machine: Machine) -> float:
        """Until when the machine can be rented."""
        return self.began_at + machine.days * DAY_S

    def free(self, machine_id: int, *, bid_usd: float | None = None) -> int:
        """GPUs that somebody who bids so much could have; on demand goes before every bid."""
        held = sum(
            holding.gpus
            for holding in self._holdings.values()
            if holding.machine_id == machine_id and not _outranks(bid_usd, holding.bid_usd)
        )
        return self.machines[machine_id].gpus - held

    def hold(self, instance_id: int, holding: Holding) -> Sequence[int]:
        """The instance has its GPUs; the ids of the instances that had to yield."""
        self.release(instance_id)
        yielded = []
        while not self._fits(holding) and (loser := self._weakest(holding)) is not None:
            del self._holdings[loser]
            yielded.append(loser)
        self._holdings[instance_id] = holding
        return yielded

    def release(self, instance_id: int) -> None:
        """The instance has no GPUs any more."""
        self._holdings.pop(instance_id, None)

    def bid_of(self, holder_id: int) -> float | None:
        """What a holder pays; None when nobody of that id holds anything, or holds it on demand."""
        holding = self._holdings.get(holder_id)
        return holding.bid_usd if holding else None

    def winning_bid(self, machine_id: int, gpus: int, *, instance_id: int) -> float:
        """The lowest bid with which that instance has the GPUs for sure."""
        others = [
            other
            for holder_id, other in self._holdings.items()
            if other.machine_id == machine_id and holder_id != instance_id
        ]
        highest = max((other.bid_usd or 0.0 for other in others), default=0.0)
        return round(max(self.machines[machine_id].min_bid_usd * gpus, highest * 1.01), 6)

    def _fits(self, holding: Holding) -> bool:
        held = sum(other.gpus for other in self._holdings.values() if other.machine_id == holding.machine_id)
        return held + holding.gpus <= self.machines[holding.machine_id].gpus

    def _weakest(self, holding: Holding) -> int | None:
        weaker = [
            (other.bid_usd or 0.0, instance_id)
            for instance_id, other in self._holdings.items()
            if other.machine_id == holding.machine_id and _outranks(holding.bid_usd, other.bid_usd)
        ]
        return min(weaker)[1] if weaker else None

    def _asks_of(self, machine: Machine, kind: str) -> list[Ask]:
        free = self.free(machine.id, bid_usd=0.0 if kind in ("bid", "interruptible") else None)
        return [self._issued(machine, size) for size in (1, 2, 4, 8) if size <= free]

    def _issued(self, machine: Machine, gpus: int) -> Ask:
        now = self._clock.now()
        current = self._asks.get(self._current.get((machine.id, gpus), 0))
        if current is None or now - current.issued_at > REISSUE_S:
            current = Ask(id=next(self._ids), machine=machine, gpus=gpus, issued_at=now)
            self._asks[current.id] = current
            self._current[machine.id, gpus] = current.id
        return current

    def _row(self, ask: Ask, kind: str, storage_gb: float, *, rented: bool) -> dict[str, Any]:
        row = offer_row(
            ask.machine,
            ask_id=ask.id,
            gpus=ask.gpus,
            storage_gb=storage_gb,
            bid=kind in ("bid", "interruptible"),
            now=self._clock.now(),
            end_date=self.end_date(ask.machine),
        )
        noise = self._chance.uniform(1 - _SCORE_NOISE, 1 + _SCORE_NOISE)
        return {**row, "score": round(row["score"] * noise, 2), "rented": rented}


def _outranks(bid_usd: float | None, other_usd: float | None) -> bool:
    """On demand beats every bid, a bid beats a lower one."""
    return other_usd is not None and (bid_usd is None or bid_usd > other_usd)


def _searchable(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row as filters see it: places by country code, `verified` and `datacenter` made up, no `id`."""
    return {
        **row,
        "id": None,
        "geolocation": row["geolocation"].rpartition(", ")[2],
        "verified": row["verification"] == "verified",
        "datacenter": row["hosting_type"] == 1,
    }
