"""What a check of the account finds in Vast's search, filter by filter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.launcher.providers.vast.rows import offer
from vastrun.launcher.core import SearchFinding
from vastrun.launcher.providers.vast.api import VastApi
from vastrun.launcher.providers.vast.offers import search_findings

CLUSTER, CUDA, NAME = "cluster_id", "cuda_max_good", "gpu_name"
Market = Callable[[Mapping[str, Any]], Any]


class Api:
    """Searches that a function answers, given their filters."""

    def __init__(self, market: Market) -> None:
        self._market = market
        self.asked: list[Mapping[str, Any]] = []

    def once(self, endpoint: str, search: Callable[[Any], object]) -> None:
        assert endpoint == "search"
        search(SimpleNamespace(client=SimpleNamespace(post=self._post)))

    def _post(self, path: str, *, json_data: Mapping[str, Any]) -> Any:
        assert path == "/bundles/"
        self.asked.append(json_data)
        answer = self._market(json_data)
        return SimpleNamespace(raise_for_status=lambda: None, json=lambda: answer)


def findings(market: Market) -> dict[str, SearchFinding]:
    return {found.name: found for found in search_findings(cast(VastApi, Api(market)))}


def matching(rows: Iterable[Any], query: Mapping[str, Any], *ignored: str) -> dict[str, Any]:
    """An answer with the rows that pass the filters that are not ignored."""

    def passes(row: Any, column: str) -> bool:
        known, test = row.get(column), query.get(column, {})
        if column in ignored or not test:
            return True
        if "gte" in test:
            return bool(known >= test["gte"])
        return known in test["in"] if "in" in test else known is not None

    return {"offers": [row for row in rows if all(passes(row, column) for column in (CLUSTER, CUDA, NAME))]}


ROWS = [
    offer(cluster_id=7),
    offer(cuda_max_good=12.4),
    offer(cuda_max_good=12.3),
    offer(cuda_max_good=None, gpu_name="H100", end_date=None),
]


def test_a_search_as_documented_is_expected() -> None:
    api = Api(lambda query: matching(ROWS[:3], query))
    found = list(search_findings(cast(VastApi, api)))
    assert [(one.name, one.text, one.is_expected) for one in found] == [
        ("search", "3 offers with a limit of 1,000", True),
        ("offers", "3 of 3 offers can be read", True),
        ("CUDA filter", "2 of 2 offers of 'RTX 4090' by cuda_max_good", True),
        ("GPU names", "2 offers by 'RTX 4090', 0 by 'RTX_4090'", True),
        ("clusters", "1 offers by the documented filter, cluster_id != null", True),
    ]
    fixed = {
        "verified": {"eq": True},
        "external": {"eq": False},
        "rentable": {"eq": True},
        "rented": {"eq": False},
        "type": "on-demand",
        "order": [["dph_total", "asc"]],
        "limit": 1000,
        "allocated_storage": 8.0,
    }
    assert api.asked == [
        fixed,
        fixed | {NAME: {"in": ["RTX 4090"]}, CUDA: {"gte": 12.4}},
        fixed | {NAME: {"in": ["RTX_4090"]}},
        fixed | {CLUSTER: {"neq": None}},
    ]


def test_filters_that_vast_ignores_or_applies_to_nothing_are_told() -> None:
    found = findings(lambda query: {"offers": []} if CUDA in query else matching(ROWS, query, CLUSTER))
    assert found["CUDA filter"].text == (
        "0 of 2 offers of 'RTX 4090' by cuda_max_good alone, 0 by cuda_max_good and compute_cap"
    )
    assert not found["CUDA filter"].is_expected
    assert found["GPU names"].text == "3 offers by 'RTX 4090', 0 by 'RTX_4090'"
    assert found["clusters"].text == (
        "4 offers by the documented filter, cluster_id != null; 3 of them are in no cluster: "
        "the filter is ignored"
    )
    assert not found["clusters"].is_expected
    assert found["offers"].text == "4 of 4 offers can be read; 1 have no end_date"


def test_a_gpu_that_neither_spelling_finds_and_one_without_cuda_are_told() -> None:
    rows = [offer(cuda_max_good=None)]
    found = findings(lambda query: {"offers": []} if NAME in query else matching(rows, query))
    assert (found["GPU names"].text, found["GPU names"].is_expected) == (
        "0 offers by 'RTX 4090', 0 by 'RTX_4090'",
        False,
    )
    assert found["CUDA filter"].is_expected, "there is none to be found"


@pytest.mark.parametrize(
    ("count", "text", "is_expected"),
    [
        (0, "0 offers with a limit of 1,000", False),
        (1, "1 offers with a limit of 1,000", True),
        (63, "63 offers with a limit of 1,000", True),
        (
            64,
            "64 offers with a limit of 1,000: Vast returns at most 64 at once; vastrun continues the search "
            "by price",
            True,
        ),
        (65, "65 offers with a limit of 1,000", True),
    ],
)
def test_a_search_that_ends_at_vast_s_own_limit_is_told(count: int, text: str, is_expected: bool) -> None:
    found = findings(lambda query: matching([offer(gpu_name="H100")] * count, query))
    assert (found["search"].text, found["search"].is_expected) == (text, is_expected)
    assert ("GPU names" in found, "clusters" in found) == (False, True)


def test_the_reasons_of_rows_that_cannot_be_read_are_the_four_most_common_ones() -> None:
    faults: list[dict[str, Any]] = [
        {},
        {"dph_total": 0},
        {"num_gpus": 1e13},
        {"gpu_ram": "x" * 99},
        {"machine_id": "m"},
    ]
    rows: list[Any] = [offer(**fault) for n, fault in enumerate(faults) for _ in range(9 - n)]
    found = findings(lambda query: {"offers": rows})["offers"]
    head, _, reasons = found.text.partition(": ")
    assert (head, found.is_expected) == ("9 of 35 offers can be read", False)
    assert [reason.partition(" with ")[0] for reason in reasons.split(", ")] == ["8", "7", "6", "5"]
    assert reasons.startswith("8 with an offer without a price, 7 with 10000000000000.0 is out of range")
    assert max(len(reason.partition(" with ")[2]) for reason in reasons.split(", ")) == 60


@pytest.mark.parametrize("answer", [None, [], {}, {"offers": None}, {"offers": {"0": offer()}}])
def test_a_search_without_an_answer_is_no_finding(answer: object) -> None:
    assert findings(lambda query: answer) == {
        "search": SearchFinding(name="search", text="the search was not answered", is_expected=None)
    }


def test_a_rejected_search_of_clusters_is_left_out() -> None:
    found = findings(lambda query: None if CLUSTER in query else matching(ROWS[:1], query))
    assert list(found) == ["search", "offers", "CUDA filter", "GPU names"]
