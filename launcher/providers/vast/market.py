"""Search of Vast's market: the offers that fit a job, their order, and why others do not fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any

from vastrun.launcher.core import Offer
from vastrun.launcher.core.errors import NoOfferError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.estimates import Constraint, MarketReport, price_limit_error
from vastrun.launcher.decisions.history import NOTHING_AVOIDED, AvoidedHosts, SpeedHistory
from vastrun.launcher.decisions.job_shape import shape_of, steps_of
from vastrun.launcher.decisions.nodes import alternative_to_nodes
from vastrun.launcher.image.lock import Lock
from vastrun.launcher.providers.vast.account import CachedQuery
from vastrun.launcher.providers.vast.api import VastApi
from vastrun.launcher.providers.vast.funnel import NODES, Funnel, funnel
from vastrun.launcher.providers.vast.offers import (
    DEFAULT_OFFERS,
    MAX_OFFERS,
    all_spellings,
    query,
    verified_and_free,
)
from vastrun.launcher.providers.vast.overlays import WHY_ONE_NODE
from vastrun.launcher.providers.vast.ranking import rank_offers, shuffle_equals
from vastrun.launcher.providers.vast.rows import OfferRow

_CHEAPEST = ("dph_total", "asc")
_CACHE_S = 30.0
"""Seconds for which the offers of a search are cached when many runs share the provider."""


def fitting_offers(
    api: VastApi, spec: JobSpec, lock: Lock, known: SpeedHistory, now: float, rng: Random
) -> list[Offer]:
    """Return offers that pass all hard limits, lowest expected cost of the job first; equals in random order.

    Raises NoOfferError with the number of offers that each limit removed.
    """
    rows = _search_best_value(api, spec, known.avoid)
    best = rank_offers(funnel(rows, spec, lock, now, known.workloads).left, spec, lock, known)
    if best:
        return [one.offer for one in shuffle_equals(best, rng)]
    # Either nothing fits, or Vast interprets a filter differently: search again without the job's filters.
    rows, truncated = _search_market(api, spec)
    seen = funnel(rows, spec, lock, now, known.workloads, truncated=truncated)
    found = [one.offer for one in rank_offers(seen.left, spec, lock, known)]
    if found:
        return found
    unlimited = replace(spec, limits=replace(spec.limits, usd_per_hour=None))
    dearer = rank_offers(funnel(rows, unlimited, lock, now, known.workloads).left, unlimited, lock, known)
    if dearer and spec.limits.usd_per_hour is not None:
        raise price_limit_error(spec, [one.offer for one in dearer])
    if any(constraint.name == NODES for constraint in seen.removed):
        raise NoOfferError(
            f"nothing on Vast fits {spec.nodes} nodes: {seen}: {WHY_ONE_NODE}",
            hint=alternative_to_nodes(spec),
        )
    raise NoOfferError(f"nothing on Vast fits the job: {seen}", hint=_relaxing_hint(seen))


def _relaxing_hint(seen: Funnel) -> str:
    """Return the limits to relax; if no single one helps, the limit that most offers fail."""
    if seen.relaxed:
        return f"relax {' or '.join(constraint.name for constraint in seen.relaxed[:2])} in the job file"
    if seen.strictest is None:
        return "relax resources: in the job file"
    limit = seen.strictest
    share = f"{limit.removed} of {seen.offers} offers fail {limit.name} ({limit.text})"
    return f"relax several limits in the job file; {share}"


def market_report(api: VastApi, spec: JobSpec, lock: Lock, known: SpeedHistory, now: float) -> MarketReport:
    """Return the effect of the job's limits on the market, and the job's expected cost on each offer."""
    best = _search_best_value(api, spec, NOTHING_AVOIDED)  # the report counts what is avoided
    cheapest, truncated = _search_market(api, spec)
    rows = {_key(row): row for row in [*cheapest, *best] if isinstance(row, dict)}
    seen = funnel(list(rows.values()), spec, lock, now, known.workloads, truncated=truncated)
    # The same pool as in `fitting_offers`, so that an offer has the same estimate in both.
    pool = funnel(best, spec, lock, now, known.workloads).left or seen.left
    quotes = rank_offers(pool, spec, lock, known)
    removed = seen.removed
    if dearer := len(pool) - len(quotes):
        text = "costs less the other way: by a bid or not"
        removed = (*removed, Constraint(name="interruptible", text=text, removed=dearer))
    return MarketReport(
        offers=seen.offers,
        unreadable=seen.unreadable,
        constraints=removed,
        truncated=truncated,
        strictest=seen.strictest,
        relaxations=seen.relaxed,
        quotes=tuple(quotes),
        beyond=len(seen.left) - len(pool),
    )


def _search_best_value(api: VastApi, spec: JobSpec, avoid: AvoidedHosts) -> list[Any]:
    """Return the offers with the most performance per USD; for interruptible jobs, bids and on demand."""
    order = ("dlperf_per_dphtotal", "desc") if spec.resources.gpus else _CHEAPEST
    found = [
        _search(api, spec, query(spec, bid=bid, avoid=avoid), order, bid=bid) for bid in _bid_searches(spec)
    ]
    return [row for rows in found for row in rows]


def _bid_searches(spec: JobSpec) -> tuple[bool, ...]:
    """Return for each search whether it is for bids: a bid may cost more than the GPUs on demand."""
    return (True, False) if spec.resources.interruptible else (False,)


def _search_market(api: VastApi, spec: JobSpec) -> tuple[list[Any], bool]:
    """Return the cheapest offers of each kind without the job's limits, and whether there may be more."""
    names = all_spellings(spec.resources.gpu_names)
    by_name = {"gpu_name": {"in": names}} if names else {}
    rows, truncated = _cheapest(api, spec, by_name)
    return (rows, truncated) if rows or not names else _cheapest(api, spec, {})


def _cheapest(api: VastApi, spec: JobSpec, more: Mapping[str, Any]) -> tuple[list[Any], bool]:
    pages = [_cheapest_of(api, spec, more, bid=bid) for bid in _bid_searches(spec)]
    return [row for rows, _ in pages for row in rows], any(truncated for _, truncated in pages)


def _cheapest_of(
    api: VastApi, spec: JobSpec, more: Mapping[str, Any], *, bid: bool
) -> tuple[list[Any], bool]:
    """Search by price. Vast's search has no pages, so each further search starts at the last price."""
    filters: dict[str, Any] = {**verified_and_free(), **more}
    rows: dict[Any, Any] = {}
    for _ in range(4):  # pages
        page = _search(api, spec, filters, _CHEAPEST, bid=bid)
        found = {_key(row): row for row in page if isinstance(row, dict)}
        prices = [row.usd_per_hour for row in map(OfferRow.of, page) if row is not None]
        is_last = not _may_be_truncated(page) or not prices or found.keys() <= rows.keys()
        rows |= found
        if is_last:
            return list(rows.values()), _may_be_truncated(page)
        # `gte`, not `gt`: of several offers at the last price some may have been cut off.
        filters["dph_total"] = {"gte": max(prices)}
    return list(rows.values()), True


def _may_be_truncated(page: Sequence[Any]) -> bool:
    return len(page) >= MAX_OFFERS or len(page) == DEFAULT_OFFERS


def _key(row: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the key of a row: an offer has the same id on demand and for bids."""
    return str(row.get("id")), bool(row.get("is_bid"))


def _search(
    api: VastApi, spec: JobSpec, filters: Mapping[str, Any], order: tuple[str, str], *, bid: bool
) -> list[Any]:
    rows = api.search(
        filters,
        kind="bid" if bid else "on-demand",
        disk_gb=spec.resources.disk_gb,
        order=order,
        limit=MAX_OFFERS,
    )
    # Rows may lack the column `is_bid`, but the search determines it.
    return [{**row, "is_bid": bid} if isinstance(row, dict) else row for row in rows]


class SharedOffers:
    """Offers for many runs of a process: equal searches share an answer, and no offer is ordered twice."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._searches: dict[str, CachedQuery[Sequence[Offer]]] = {}
        self._ordered_at: dict[str, float] = {}
        """Time of the last order for each offer by this process; inf during the order."""
        self._listed_at: dict[str, float] = {}
        """Time of the newest search that lists the offer: one listed after its order is free again."""

    def offers(self, spec: JobSpec, search: Callable[[], Sequence[Offer]]) -> Sequence[Offer]:
        """Return the offers for the job, without those that were ordered since the search."""
        # Points of a batch differ in their training, but most need the same search.
        asked = (spec.resources, spec.limits, spec.image, spec.ranks, spec.nodes)
        wants = repr((asked, shape_of(spec), steps_of(spec)))
        oldest = self._now() - _CACHE_S
        for other, known in list(self._searches.items()):
            if other != wants and known.asked_at < oldest:
                self._searches.pop(other, None)  # a batch may ask for as many markets as it has points
        latest = self._searches.setdefault(wants, CachedQuery(search, self._now, _CACHE_S))
        left = self._without_ordered(latest)
        if left:
            return left
        latest.invalidate()
        return self._without_ordered(latest)

    def check_free(self, offer_id: str) -> None:
        """Raise NoOfferError if the offer was ordered, and not listed since."""
        listed_at = self._listed_at.get(offer_id, -math.inf)
        if offer_id in self._ordered_at and self._ordered_at[offer_id] >= listed_at:
            raise NoOfferError("another run of this launcher ordered it")

    @contextmanager
    def ordering(self, offer_id: str) -> Iterator[None]:
        """Mark the offer as ordered from before the call, in which Vast may take seconds to answer."""
        self._ordered_at[offer_id] = math.inf
        try:
            yield
        finally:
            self._ordered_at[offer_id] = self._now()

    def _without_ordered(self, market: CachedQuery[Sequence[Offer]]) -> Sequence[Offer]:
        """Return the offers without those ordered since the search: one listed later is free again."""
        offers, asked_at = market.get(), market.asked_at
        left = [offer for offer in offers if self._ordered_at.get(offer.id, -math.inf) < asked_at]
        self._listed_at.update(dict.fromkeys((offer.id for offer in left), asked_at))
        return left
