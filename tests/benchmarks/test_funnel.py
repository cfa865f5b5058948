"""The funnel of the recorded market is whole, and docs/cost.md shows it."""

from __future__ import annotations

import pytest

from benchmarks.funnel import JOBS, LIMITS, seen, table
from tests.schemas import ROOT


def test_the_page_shows_what_each_limit_removes_of_the_recorded_market() -> None:
    page = (ROOT / "docs" / "cost.md").read_text(encoding="utf-8")
    assert "\n".join(table()) in page, "python -m benchmarks funnel prints the table of docs/cost.md"


@pytest.mark.parametrize("name", JOBS)
def test_each_offer_is_removed_by_one_limit_of_the_table_or_left(name: str) -> None:
    found = seen(JOBS[name])
    assert found.offers == 1343
    assert found.unreadable == 0
    assert sum(limit.removed for limit in found.removed) + len(found.left) == 1343
    assert {limit.name for limit in found.removed} <= LIMITS.keys()
