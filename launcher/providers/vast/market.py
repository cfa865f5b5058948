"""Searching Vast's market: what fits a job, in which order, and why the rest does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launcher.errors import NoOfferError
from launcher.job import JobSpec
from launcher.model import Offer
from launcher.providers.vast.api import VastApi
from launcher.providers.vast.offers import Funnel, funnel, offer_of, query, verified_and_free
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
    offers = [offer_of(made.row, spec) for made in ranked(funnel(rows, spec, now).left, spec)]
    found = [offer for offer in offers if offer is not None]
    if found:
        return found
    seen = survey(api, spec, now).funnel
    relax = " or ".join(hurdle.name for hurdle, _ in seen.relaxed[:2]) or "resources:"
    raise NoOfferError(f"nothing on Vast fits the job: {seen}", hint=f"relax {relax} in the job file")


def survey(api: VastApi, spec: JobSpec, now: float) -> Survey:
    """The cheapest offers of the market, up to 256, whatever the job's limits, and what the limits leave."""
    filters: dict[str, Any] = dict(verified_and_free())
    if spec.resources.gpu_names:
        filters["gpu_name"] = {"in": list(spec.resources.gpu_names)}
    rows: dict[Any, Any] = {}
    for _ in range(_PAGES):
        page = _search(api, spec, filters, _CHEAPEST)
        rows |= {row.get("id"): row for row in page if isinstance(row, dict)}
        prices = [row["dph_total"] for row in page if isinstance(row, dict) and row.get("dph_total")]
        if len(page) < _PAGE or not prices:
            break
        filters["dph_total"] = {"gte": max(prices)}
    seen = funnel(list(rows.values()), spec, now)
    return Survey(funnel=seen, estimates=tuple(ranked(seen.left, spec)))


def _search(api: VastApi, spec: JobSpec, filters: Mapping[str, Any], order: str) -> list[Any]:
    kind = "bid" if spec.resources.interruptible else "on-demand"
    return api.search(filters, kind=kind, disk_gb=spec.resources.disk_gb, order=order)
