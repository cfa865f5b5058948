"""Checks of Vast's search that cost nothing: does it find what it has, and can every offer be read?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from launcher.core import SearchFinding
from launcher.gate.text import one_line
from launcher.providers.vast.api import VastApi
from launcher.providers.vast.offers import verified_and_free
from launcher.providers.vast.rows import OfferRow

LIMIT = 1000
_DEFAULT_PAGE = 64
_QUERY = {"type": "on-demand", "order": [["dph_total", "asc"]], "limit": LIMIT, "allocated_storage": 8.0}
_CUDA, _COMPUTE_CAP = 12.4, 700
"""Every image of the lock runs there; few offers have less."""
_DOCUMENTED_CLUSTERS = {"cluster_id": {"neq": None}}
_MAX_REASONS, _MAX_REASON = 4, 60


def search_findings(api: VastApi) -> Iterator[SearchFinding]:
    """Search six times, and yield what was found out. A search that is refused is left out."""
    everything = _search(api, {})
    if everything is None:
        yield SearchFinding(name="search", text="the search was not answered", is_expected=None)
        return
    yield _of_limit(len(everything))
    yield _of_rows(everything)
    alone = _search(api, {"cuda_max_good": {"gte": _CUDA}})
    together = _search(api, {"cuda_max_good": {"gte": _CUDA}, "compute_cap": {"gte": _COMPUTE_CAP}})
    if alone is not None and together is not None:
        yield _of_cuda(len(alone), len(together))
    clusters = _search(api, _DOCUMENTED_CLUSTERS)
    if clusters is not None:
        yield _of_clusters(clusters)
    names = Counter(str(row.get("gpu_name")) for row in _objects(everything))
    named = next((name for name, _ in names.most_common() if " " in name and name.isprintable()), None)
    if named is not None:
        yield from _of_names(api, named[:_MAX_REASON])


def _search(api: VastApi, filters: Mapping[str, Any]) -> list[Any] | None:
    """Return the offers; None where there is no answer, or no list."""
    answers: list[Any] = []
    query = {**verified_and_free(), **filters, **_QUERY}

    def search(sdk: Any) -> None:
        # The SDK's own search fails where one row is odd.
        answer = sdk.client.post("/bundles/", json_data=query)
        answer.raise_for_status()
        answers.append(answer.json())

    api.once("search", search)
    rows = answers[0].get("offers") if answers and isinstance(answers[0], dict) else None
    return rows if isinstance(rows, list) else None


def _objects(rows: list[Any]) -> list[Mapping[str, Any]]:
    return [row for row in rows if isinstance(row, dict)]


def _of_limit(found: int) -> SearchFinding:
    text = f"{found} offers with a limit of {LIMIT:,}"
    if found == _DEFAULT_PAGE:
        text += f": no more than {_DEFAULT_PAGE} are returned at once, and vastrun searches further by price"
    return SearchFinding(name="search", text=text, is_expected=found > 0)


def _of_rows(rows: list[Any]) -> SearchFinding:
    """Say how many offers cannot be read, and why."""
    faults = Counter(one_line(fault)[:_MAX_REASON] for row in rows if (fault := OfferRow.fault(row)))
    unreadable = sum(faults.values())
    endless = sum("end_date" in row and row["end_date"] is None for row in _objects(rows))
    text = f"{len(rows) - unreadable} of {len(rows)} offers can be read"
    if faults:
        text += ": " + ", ".join(f"{count} with {why}" for why, count in faults.most_common(_MAX_REASONS))
    text += f"; {endless} have no end_date" if endless else ""
    return SearchFinding(name="offers", text=text, is_expected=unreadable == 0)


def _of_cuda(alone: int, together: int) -> SearchFinding:
    text = f"{alone} offers by cuda_max_good alone, {together} by cuda_max_good and compute_cap"
    return SearchFinding(name="CUDA filter", text=text, is_expected=alone > 0 or together == 0)


def _of_clusters(rows: list[Any]) -> SearchFinding:
    others = sum(row.get("cluster_id") is None for row in _objects(rows))
    text = f"{len(rows)} offers by the documented filter, cluster_id != null"
    text += f"; {others} of them are in no cluster: the filter is ignored" if others else ""
    return SearchFinding(name="clusters", text=text, is_expected=others == 0)


def _of_names(api: VastApi, name: str) -> Iterator[SearchFinding]:
    """Search for the same GPUs by both spellings: vastrun sends both."""
    counts = {}
    for spelling in (name, name.replace(" ", "_")):
        found = _search(api, {"gpu_name": {"in": [spelling]}})
        if found is None:
            return
        counts[spelling] = len(found)
    text = ", ".join(f"{count} offers by {spelling!r}" for spelling, count in counts.items())
    yield SearchFinding(name="GPU names", text=text, is_expected=any(counts.values()))
