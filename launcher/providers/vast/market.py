"""Searching Vast's market: what fits a job, in which order, and why the rest does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from launcher.core import Offer
from launcher.core.errors import NoOfferError
from launcher.core.job import JobSpec
from launcher.decisions.estimates import over_the_price
from launcher.decisions.gang import instead_of_nodes
from launcher.decisions.market_report import Constraint, MarketReport, Quote, Relaxation
from launcher.decisions.speed_history import SpeedHistory
from launcher.image.lock import Lock
from launcher.providers.vast.api import VastApi
from launcher.providers.vast.funnel import NODES, funnel
from launcher.providers.vast.offers import query, verified_and_free
from launcher.providers.vast.overlays import WHY_ONE_NODE
from launcher.providers.vast.ranking import ranked, shuffled
from launcher.providers.vast.rows import OfferRow

_MOST_WORK_PER_DOLLAR = "dlperf_per_dphtotal-"
_CHEAPEST = "dph_total"
_PAGE = 64
"""Vast gives no more offers at once, whatever is asked for."""
_PAGES = 4


def fitting(
    api: VastApi, spec: JobSpec, lock: Lock, known: SpeedHistory, now: float, chance: Random
) -> list[Offer]:
    """Return offers that pass every hard limit, the cheapest to finish first; equals in any order.

    Raises NoOfferError, which says what each limit removed.
    """
    rows = _search(api, spec, query(spec), _order(spec))
    best = ranked(funnel(rows, spec, lock, now, known.workloads).left, spec, lock, known)
    if best:
        return [one.offer for one in shuffled(best, chance)]
    # Nothing fits, or Vast reads a filter in another way than we do: the whole market knows.
    rows = _market(api, spec)
    seen = funnel(rows, spec, lock, now, known.workloads)
    found = [one.offer for one in ranked(seen.left, spec, lock, known)]
    if found:
        return found
    unlimited = replace(spec, limits=replace(spec.limits, usd_per_hour=None))
    dearer = ranked(funnel(rows, unlimited, lock, now, known.workloads).left, unlimited, lock, known)
    if dearer and spec.limits.usd_per_hour is not None:
        raise over_the_price(spec, [one.offer for one in dearer])
    if any(constraint.name == NODES for constraint, _ in seen.removed):
        raise NoOfferError(
            f"nothing on Vast fits {spec.nodes} nodes: {seen}: {WHY_ONE_NODE}", hint=instead_of_nodes(spec)
        )
    relax = " or ".join(constraint.name for constraint, _ in seen.relaxed[:2]) or "resources:"
    raise NoOfferError(f"nothing on Vast fits the job: {seen}", hint=f"relax {relax} in the job file")


def market_report(api: VastApi, spec: JobSpec, lock: Lock, known: SpeedHistory, now: float) -> MarketReport:
    """Return what the job's limits leave of the market, and what each offer would cost to finish."""
    best = _search(api, spec, query(spec), _order(spec))
    rows = {str(row.get("id")): row for row in [*_market(api, spec), *best] if isinstance(row, dict)}
    seen = funnel(list(rows.values()), spec, lock, now, known.workloads)
    # As in `fitting`, so that an offer has the same estimate in both.
    pool = funnel(best, spec, lock, now, known.workloads).left or seen.left
    return MarketReport(
        offers=seen.offers,
        unreadable=seen.unreadable,
        constraints=tuple(Constraint(name=h.name, text=h.text, removed=count) for h, count in seen.removed),
        relaxations=tuple(Relaxation(name=h.name, left=count) for h, count in seen.relaxed),
        quotes=tuple(
            Quote(offer=estimate.offer, terms=estimate.terms) for estimate in ranked(pool, spec, lock, known)
        ),
        beyond=len(seen.left) - len(pool),
    )


def _market(api: VastApi, spec: JobSpec) -> list[Any]:
    """The cheapest offers, up to 256, whatever the job's limits."""
    names = list(spec.resources.gpu_names)
    rows = _cheapest(api, spec, {"gpu_name": {"in": names}} if names else {})
    return rows if rows or not names else _cheapest(api, spec, {})


def _cheapest(api: VastApi, spec: JobSpec, wanted: Mapping[str, Any]) -> list[Any]:
    filters: dict[str, Any] = {**verified_and_free(), **wanted}
    rows: dict[Any, Any] = {}
    for _ in range(_PAGES):
        page = _search(api, spec, filters, _CHEAPEST)
        rows |= {str(row.get("id")): row for row in page if isinstance(row, dict)}
        prices = [row.usd_per_hour for row in map(OfferRow.of, page) if row is not None]
        if len(page) < _PAGE or not prices:
            break
        filters["dph_total"] = {"gte": max(prices)}
    return list(rows.values())


def _order(spec: JobSpec) -> str:
    return _MOST_WORK_PER_DOLLAR if spec.resources.gpus else _CHEAPEST


def _search(api: VastApi, spec: JobSpec, filters: Mapping[str, Any], order: str) -> list[Any]:
    kind = "bid" if spec.resources.interruptible else "on-demand"
    return api.search(filters, kind=kind, disk_gb=spec.resources.disk_gb, order=order)
