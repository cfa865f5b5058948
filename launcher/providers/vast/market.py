"""Searching Vast's market: what fits a job, in which order, and why the rest does not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from launcher.errors import NoOfferError
from launcher.job import JobSpec
from launcher.model import Offer
from launcher.providers.vast.api import VastApi
from launcher.providers.vast.funnel import Funnel, funnel
from launcher.providers.vast.offers import offer_of, query, verified_and_free
from launcher.providers.vast.ranking import Estimate, ranked

_MOST_WORK_PER_DOLLAR = "dlperf_per_dphtotal-"
_CHEAPEST = "dph_total"
_PAGE = 64
"""Vast gives no more offers at once, whatever is asked for."""
_PAGES = 4
_EXPLAINED = 5


@dataclass(frozen=True, kw_only=True)
class Survey:
    """The market as one job sees it."""

    funnel: Funnel
    estimates: tuple[Estimate, ...]
    """Of what is left, the cheapest to finish first."""

    def __str__(self) -> str:
        best = [f"{place}. {made}" for place, made in enumerate(self.estimates[:_EXPLAINED], 1)]
        return "\n".join([str(self.funnel), *best])


def fitting(api: VastApi, spec: JobSpec, now: float) -> list[Offer]:
    """Offers that pass every hard limit, the cheapest to finish first.

    Raises NoOfferError, which says what each limit removed.
    """
    order = _MOST_WORK_PER_DOLLAR if spec.resources.gpus else _CHEAPEST
    rows = _search(api, spec, query(spec), order)
    found = _offers(ranked(funnel(rows, spec, now).left, spec), spec)
    if found:
        return found
    # Nothing fits, or Vast reads a filter in another way than we do: the survey knows.
    seen = survey(api, spec, now)
    found = _offers(seen.estimates, spec)
    if found:
        return found
    relax = " or ".join(hurdle.name for hurdle, _ in seen.funnel.relaxed[:2]) or "resources:"
    raise NoOfferError(f"nothing on Vast fits the job: {seen.funnel}", hint=f"relax {relax} in the job file")


def survey(api: VastApi, spec: JobSpec, now: float) -> Survey:
    """The cheapest offers of the market, up to 256, whatever the job's limits, and what the limits leave."""
    names = list(spec.resources.gpu_names)
    rows = _cheapest(api, spec, {"gpu_name": {"in": names}} if names else {})
    if names and not rows:
        rows = _cheapest(api, spec, {})
    seen = funnel(rows, spec, now)
    return Survey(funnel=seen, estimates=tuple(ranked(seen.left, spec)))


def _offers(estimates: Iterable[Estimate], spec: JobSpec) -> list[Offer]:
    offers = (offer_of(estimate.row, spec) for estimate in estimates)
    return [offer for offer in offers if offer is not None]


def _cheapest(api: VastApi, spec: JobSpec, wanted: Mapping[str, Any]) -> list[Any]:
    filters: dict[str, Any] = {**verified_and_free(), **wanted}
    rows: dict[Any, Any] = {}
    for _ in range(_PAGES):
        page = _search(api, spec, filters, _CHEAPEST)
        rows |= {row.get("id"): row for row in page if isinstance(row, dict)}
        prices = [row["dph_total"] for row in page if isinstance(row, dict) and row.get("dph_total")]
        if len(page) < _PAGE or not prices:
            break
        filters["dph_total"] = {"gte": max(prices)}
    return list(rows.values())


def _search(api: VastApi, spec: JobSpec, filters: Mapping[str, Any], order: str) -> list[Any]:
    kind = "bid" if spec.resources.interruptible else "on-demand"
    return api.search(filters, kind=kind, disk_gb=spec.resources.disk_gb, order=order)
