"""Checks of Vast's search, free of charge: whether its filters work and all offers are readable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from vastrun.launcher.core import SearchFinding
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.providers.vast.api import VastApi
from vastrun.launcher.providers.vast.offers import verified_and_free
from vastrun.launcher.providers.vast.rows import OfferRow
from vastrun.launcher.providers.vast.sdk import json_of

LIMIT = 1000
_DEFAULT_PAGE = 64
_QUERY = {"type": "on-demand", "order": [["dph_total", "asc"]], "limit": LIMIT, "allocated_storage": 8.0}
_CUDA, _COMPUTE_CAP = 12.4, 700
"""Requirements that every image of the lock meets; few offers are below them."""
_DOCUMENTED_CLUSTERS = {"cluster_id": {"neq": None}}
_MAX_REASONS, _MAX_REASON = 4, 60


def search_findings(api: VastApi) -> Iterator[SearchFinding]:
    """Search four times, more often when a filter fails, and yield the findings.

    Vast allows ten searches a minute, so two checks in a row need not wait. A rejected search is left out.
    """
    everything = _search(api, {})
    if everything is None:
        yield SearchFinding(name="search", text="the search was not answered", is_expected=None)
        return
    yield _of_limit(len(everything))
    yield _of_rows(everything)
    rows = _objects(everything)
    names = Counter(str(row.get("gpu_name")) for row in rows)
    name = next((name for name, _ in names.most_common() if " " in name and name.isprintable()), None)
    if name is not None:
        yield from _of_name(api, name[:_MAX_REASON], [row for row in rows if row.get("gpu_name") == name])
    clusters = _search(api, _DOCUMENTED_CLUSTERS)
    if clusters is not None:
        yield _of_clusters(clusters)


def _search(api: VastApi, filters: Mapping[str, Any]) -> list[Any] | None:
    """Return the offers; None without a valid response."""
    answers: list[Any] = []
    query = {**verified_and_free(), **filters, **_QUERY}

    def search(sdk: Any) -> None:
        # The SDK's search fails when a single row is invalid.
        answers.append(json_of(sdk.client.post("/bundles/", json_data=query)))

    api.once("search", search)
    rows = answers[0].get("offers") if answers and isinstance(answers[0], dict) else None
    return rows if isinstance(rows, list) else None


def _objects(rows: list[Any]) -> list[Mapping[str, Any]]:
    return [row for row in rows if isinstance(row, dict)]


def _of_limit(found: int) -> SearchFinding:
    text = f"{found} offers with a limit of {LIMIT:,}"
    if found == _DEFAULT_PAGE:
        text += f": Vast returns at most {_DEFAULT_PAGE} at once; vastrun continues the search by price"
    return SearchFinding(name="search", text=text, is_expected=found > 0)


def _of_rows(rows: list[Any]) -> SearchFinding:
    """Return the number of unreadable offers and the reasons."""
    faults = Counter(one_line(fault)[:_MAX_REASON] for row in rows if (fault := OfferRow.fault(row)))
    unreadable = sum(faults.values())
    endless = sum("end_date" in row and row["end_date"] is None for row in _objects(rows))
    text = f"{len(rows) - unreadable} of {len(rows)} offers can be read"
    if faults:
        text += ": " + ", ".join(f"{count} with {why}" for why, count in faults.most_common(_MAX_REASONS))
    text += f"; {endless} have no end_date" if endless else ""
    return SearchFinding(name="offers", text=text, is_expected=unreadable == 0)


def _of_clusters(rows: list[Any]) -> SearchFinding:
    outside = sum(row.get("cluster_id") is None for row in _objects(rows))
    text = f"{len(rows)} offers by the documented filter, cluster_id != null"
    text += f"; {outside} of them are in no cluster: the filter is ignored" if outside else ""
    return SearchFinding(name="clusters", text=text, is_expected=outside == 0)


def _of_name(api: VastApi, name: str, listed: list[Mapping[str, Any]]) -> Iterator[SearchFinding]:
    """Search for one GPU by CUDA and by both spellings: vastrun sends both."""
    by_name, by_cuda = {"gpu_name": {"in": [name]}}, {"cuda_max_good": {"gte": _CUDA}}
    expected = sum(_number(row.get("cuda_max_good")) >= _CUDA for row in listed)
    alone = _count(api, {**by_name, **by_cuda})
    spaced, text = alone, f"{alone} of {expected} offers of {name!r} by cuda_max_good"
    if alone < expected:
        combined = _count(api, {**by_name, **by_cuda, "compute_cap": {"gte": _COMPUTE_CAP}})
        spaced = _count(api, by_name)
        text += f" alone, {combined} by cuda_max_good and compute_cap"
    yield SearchFinding(name="CUDA filter", text=text, is_expected=alone > 0 or expected == 0)
    underscored = name.replace(" ", "_")
    other = _count(api, {"gpu_name": {"in": [underscored]}})
    text = f"{spaced} offers by {name!r}, {other} by {underscored!r}"
    yield SearchFinding(name="GPU names", text=text, is_expected=spaced + other > 0)


def _count(api: VastApi, filters: Mapping[str, Any]) -> int:
    return len(_search(api, filters) or ())


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and abs(value) <= caps.VAST_NUMBER else 0.0
