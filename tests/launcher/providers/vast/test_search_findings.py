"""What a check of the account finds in Vast's search."""

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from tests.launcher.providers.vast.rows import offer
from vastrun.launcher.core.market import SearchFinding
from vastrun.launcher.providers.vast.api import VastApi
from vastrun.launcher.providers.vast.calls import VastCall
from vastrun.launcher.providers.vast.errors import Answer
from vastrun.launcher.providers.vast.offers import search_findings

Market = Callable[[Mapping[str, Any]], Any]


class Api:
    """Searches that a function answers, given their filters."""

    def __init__(self, market: Market) -> None:
        self._market = market
        self.asked: list[Mapping[str, Any]] = []

    def once(self, call: VastCall) -> list[Answer]:
        assert (call.method, call.path, call.body is None) == ("POST", "/api/v0/bundles/", False)
        self.asked.append(call.body or {})
        answer = self._market(call.body or {})
        return [Answer(status=200, text=json.dumps(answer), headers={})]


def findings(market: Market) -> dict[str, SearchFinding]:
    return {found.name: found for found in search_findings(cast(VastApi, Api(market)))}


def test_a_search_as_documented_is_expected() -> None:
    rows = [offer(), offer(gpu_name="H100", end_date=None)]
    api = Api(lambda _: {"offers": rows})
    found = list(search_findings(cast(VastApi, api)))
    assert [(one.name, one.text, one.is_expected) for one in found] == [
        ("search", "2 offers with a limit of 1,000", True),
        ("offers", "2 of 2 offers can be read; 1 have no end_date", True),
    ]
    assert api.asked == [
        {
            "verified": {"eq": True},
            "external": {"eq": False},
            "rentable": {"eq": True},
            "rented": {"eq": False},
            "type": "on-demand",
            "order": [["dph_total", "asc"]],
            "limit": 1000,
            "allocated_storage": 8.0,
        }
    ]


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
    found = findings(lambda _: {"offers": [offer()] * count})
    assert (found["search"].text, found["search"].is_expected) == (text, is_expected)


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
