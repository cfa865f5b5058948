"""The cheapest offer to finish on comes first, and the ranking says why."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.job import JobSpec, Resources
from launcher.providers.vast.ranking import Estimate, ranked
from tests.fakes import train_job
from tests.launcher.vast.rows import offer_row


def best(*changes: dict[str, Any], spec: JobSpec | None = None) -> str:
    """The machine that is ranked first of offers that differ by these changes."""
    rows = [offer_row(machine_id=number, id=number, **change) for number, change in enumerate(changes, 1)]
    return ranked(rows, spec or job())[0].row.machine_id


def job(**resources: Any) -> JobSpec:
    return train_job(resources=Resources(gpus=1, **resources))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"dph_base": 0.39, "dph_total": 0.40}, {"dph_base": 0.40, "dph_total": 0.41}),
        ({"dlperf": 100.0}, {"dlperf": 90.0}),
        ({"dlperf": 90.0}, {"dlperf": None}),
        ({"inet_down": 900.0}, {"inet_down": 100.0}),
        ({"inet_down_cost": 0.0}, {"inet_down_cost": 0.02}),
        ({"inet_up_cost": 0.0}, {"inet_up_cost": 0.05}),
        ({"dph_base": 0.4, "dph_total": 0.401}, {"dph_base": 0.4, "dph_total": 0.45}),
        ({"reliability": 0.999}, {"reliability": 0.96}),
    ],
)
def test_what_is_better_and_otherwise_equal_comes_first(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    assert best(first, second) == "1"
    assert best(second, first) == "2"


def test_a_dearer_gpu_that_is_much_faster_comes_first() -> None:
    slow = {"dph_base": 0.4, "dph_total": 0.41, "dlperf": 50.0}
    fast = {"dph_base": 0.6, "dph_total": 0.61, "dlperf": 150.0}
    assert best(slow, fast) == "2"


def test_without_gpus_in_the_job_a_faster_one_gains_nothing() -> None:
    cheap = {"dph_base": 0.1, "dph_total": 0.11, "dlperf": 10.0}
    fast = {"dph_base": 0.2, "dph_total": 0.21, "dlperf": 100.0}
    spec = train_job(resources=Resources(gpus=0))
    assert best(fast, cheap, spec=spec) == "2"


def test_the_parts_of_an_estimate_make_its_sum() -> None:
    estimate = only(job())
    parts = (estimate.train_usd, estimate.storage_usd, estimate.fetch_usd, estimate.bandwidth_usd)
    assert estimate.usd == pytest.approx(sum(parts) + estimate.risk_usd)
    assert all(part > 0 for part in parts)


def test_a_machine_that_may_be_taken_away_carries_more_risk() -> None:
    bid = only(job(interruptible=True))
    assert bid.risk_usd / bid.usd > only(job()).risk_usd / only(job()).usd


def test_an_estimate_explains_itself_term_by_term() -> None:
    estimate = only(job())
    assert [term.name for term in estimate.terms] == ["GPU", "disk", "fetch", "traffic", "risk"]
    assert estimate.usd == pytest.approx(sum(term.usd for term in estimate.terms))
    text = " ".join(term.text for term in estimate.terms)
    for part in ("dlperf 98", "Mbit/s", "reliability 99.7%"):
        assert part in text


def only(spec: JobSpec) -> Estimate:
    return ranked([offer_row()], spec)[0]
