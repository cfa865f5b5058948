"""The cheapest offer to finish on comes first, and the ranking says why."""

import math
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from tests.jobs import train_job, workloads
from tests.launcher.providers.vast.rows import LOCK, NOW, offer, offer_row
from vastrun.launcher.core.job import DataFile, JobSpec, Resources
from vastrun.launcher.decisions.estimates import Quote, Term
from vastrun.launcher.decisions.history import Speed, SpeedHistory
from vastrun.launcher.decisions.policy import worst_case_usd
from vastrun.launcher.providers.vast.funnel import funnel
from vastrun.launcher.providers.vast.ranking import rank_offers, shuffle_equals
from vastrun.trainer.job.config import TrainConfig

NEW = SpeedHistory()
"""Of somebody who never trained anything."""


def best(*changes: dict[str, Any], spec: JobSpec | None = None, known: SpeedHistory = NEW) -> str:
    """The machine that is ranked first of offers that differ by these changes."""
    rows = [offer_row(machine_id=number, id=number, **change) for number, change in enumerate(changes, 1)]
    return rank_offers(rows, spec or job(), LOCK, known)[0].offer.host


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
def test_the_better_of_otherwise_equal_comes_first(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert best(first, second) == "1"
    assert best(second, first) == "2"


@pytest.mark.parametrize("reliability", [99.7, 1e12, -1e12])
def test_a_reliability_that_is_no_share_makes_no_offer_cheaper_than_nothing(reliability: float) -> None:
    estimates = rank_offers(
        [offer_row(id=number, reliability=reliability) for number in (1, 2)], job(), LOCK, NEW
    )
    assert all(estimate.usd > 0 for estimate in estimates)
    assert len(shuffle_equals(estimates, Random(0))) == 2


def test_offers_of_nearly_equal_cost_are_shuffled_and_dearer_ones_stay_behind() -> None:
    equal, nearly = {"dph_base": 0.4, "dph_total": 0.401}, {"dph_base": 0.402, "dph_total": 0.403}
    dearer = {"dph_base": 0.8, "dph_total": 0.801}
    estimates = rank_offers(
        [offer_row(machine_id=n, id=n, **prices) for n, prices in enumerate((equal, nearly, dearer), 1)],
        job(),
        LOCK,
        NEW,
    )
    orders = {tuple(one.offer.host for one in shuffle_equals(estimates, Random(seed))) for seed in range(20)}
    assert orders == {("1", "2", "3"), ("2", "1", "3")}


def test_a_dearer_gpu_that_is_much_faster_comes_first() -> None:
    slow = {"dph_base": 0.4, "dph_total": 0.41, "dlperf": 50.0}
    fast = {"dph_base": 0.6, "dph_total": 0.61, "dlperf": 150.0}
    assert best(slow, fast) == "2"


def test_without_gpus_in_the_job_a_faster_one_gains_nothing() -> None:
    cheap = {"dph_base": 0.1, "dph_total": 0.11, "dlperf": 10.0}
    fast = {"dph_base": 0.2, "dph_total": 0.21, "dlperf": 100.0}
    spec = train_job(resources=Resources(gpus=0))
    assert best(fast, cheap, spec=spec) == "2"


def test_a_machine_that_may_be_taken_away_carries_more_risk() -> None:
    bid = only(job(interruptible=True))
    assert bid.terms[-1].usd / bid.usd > only(job()).terms[-1].usd / only(job()).usd


def test_an_estimate_explains_itself_term_by_term() -> None:
    estimate = only(job())
    assert [term.name for term in estimate.terms] == ["GPU", "disk", "fetch", "traffic", "risk"]
    assert estimate.usd == pytest.approx(sum(term.usd for term in estimate.terms))
    assert all(term.usd > 0 for term in estimate.terms[:-1])
    text = " ".join(term.text for term in estimate.terms)
    for part in ("dlperf 98", "Mbit/s", "failure 0.3%"):
        assert part in text


def test_the_download_of_the_jobs_data_costs_time_and_traffic() -> None:
    spec, paid = job(), {"inet_down": 800.0, "inet_down_cost": 0.01}
    (without,) = rank_offers([offer_row(**paid)], spec, LOCK, NEW)
    sends = replace(spec, data=(DataFile(path="/a", size=10**9),))
    (one,) = rank_offers([offer_row(**paid)], sends, LOCK, replace(NEW, up_mbps=40.0))
    assert (one.offer.data_s, one.offer.sent_s, one.offer.bucket_s) == pytest.approx((200, 200, 40))
    spec = replace(spec, data=(DataFile(url="https://x.org/a", size=9 * 10**9),))
    (made,) = rank_offers([offer_row(**paid)], spec, LOCK, NEW)
    # At a quarter of the listed speed, 25 MB/s.
    assert made.offer.data_s == pytest.approx(360)
    (term,) = [term for term in made.terms if term.name == "data"]
    assert term.usd == pytest.approx(0.1 * made.offer.usd_per_hour + 0.09)
    assert term.text == "6 min for 9 GB"
    assert made.usd > without.usd + term.usd * 0.99
    assert made.offer.loading_usd == pytest.approx(without.offer.loading_usd + term.usd)
    assert worst_case_usd(spec, made.offer) == pytest.approx(worst_case_usd(job(), without.offer) + 0.09)


def test_what_was_learned_on_a_kind_of_machine_counts_instead_of_its_score() -> None:
    boasts = {"gpu_name": "RTX 5090", "dlperf": 200.0}
    trains = {"gpu_name": "RTX 4090", "dlperf": 100.0}
    known = SpeedHistory(
        speeds={
            ("RTX 5090", 1): Speed(steps_per_s=10.0, runs=2),
            ("RTX 4090", 1): Speed(steps_per_s=20.0, runs=1),
        }
    )
    assert best(boasts, trains) == "1"
    assert best(boasts, trains, known=known) == "2"


def test_an_estimate_says_from_how_many_runs_it_was_learned_and_where_a_score_stands_in() -> None:
    rows = [offer_row(dlperf=98.0), offer_row(machine_id=7, gpu_name="RTX 3090", dlperf=49.0)]
    known = SpeedHistory(speeds={("RTX 4090", 1): Speed(steps_per_s=2.0, runs=3)})
    spec = replace(job(), train=TrainConfig(steps=7200, batch=8))
    learned, scored = rank_offers(rows, spec, LOCK, known)
    assert learned.terms[0].text == "1.0 h at 2 steps/s, measured (3 runs)"
    assert scored.terms[0].text == "2.0 h at 1 steps/s, scaled from RTX 4090 x1 (3 runs)"


KNOWN = SpeedHistory(speeds={("RTX 4090", 1): Speed(steps_per_s=2.0, runs=3)})
"""Somebody has trained this job on one RTX 4090."""


@pytest.mark.parametrize(
    ("row", "known", "forecast"),
    [
        ({}, KNOWN, ("measured", 3, "", 2.0)),
        ({"num_gpus": 4, "dlperf": 390.0}, KNOWN, ("scaled", 3, "RTX 4090 x1", 8.0)),
        ({"num_gpus": 4, "dlperf": None}, KNOWN, ("scaled", 3, "RTX 4090 x1", 8.0)),
        ({"gpu_name": "RTX 3090", "dlperf": 50.0}, KNOWN, ("scaled", 3, "RTX 4090 x1", 1.0)),
        ({"gpu_name": "RTX 3090", "dlperf": None}, KNOWN, ("guess", 0, "", None)),
        ({}, NEW, ("guess", 0, "", None)),
    ],
    ids=[
        "the kind",
        "more of the same",
        "more, without a score",
        "another",
        "another without a score",
        "new",
    ],
)
def test_a_forecast_says_whether_it_is_measured_scaled_or_a_guess(
    row: dict[str, Any], known: SpeedHistory, forecast: tuple[Any, ...]
) -> None:
    spec = replace(job(), train=TrainConfig(steps=7200, batch=8))
    rows = [offer_row(dlperf=100.0), offer_row(machine_id=7, id=7, **row)]
    (made,) = [one.offer.forecast for one in rank_offers(rows, spec, LOCK, known) if one.offer.host == "7"]
    assert made is not None
    assert (made.basis, made.runs, made.source, made.steps_per_s) == forecast
    if made.steps_per_s:
        assert made.train_s == pytest.approx(7200 / made.steps_per_s)
    assert made.ready_s > 20.0


def test_another_gpu_is_scaled_from_the_one_that_is_most_like_it() -> None:
    known = SpeedHistory(
        speeds={
            ("RTX 4090", 1): Speed(steps_per_s=2.0, runs=3),
            ("RTX 3060", 1): Speed(steps_per_s=9.0, runs=9),
        }
    )
    names = {"RTX 4090": 100.0, "RTX 3060": 20.0, "RTX 5090": 200.0}
    rows = [
        offer_row(gpu_name=name, machine_id=n, id=n, dlperf=x) for n, (name, x) in enumerate(names.items())
    ]
    (made,) = [
        one.offer.forecast
        for one in rank_offers(rows, job(), LOCK, known)
        if one.offer.gpu_name == "RTX 5090"
    ]
    assert made is not None
    assert (made.source, made.steps_per_s) == ("RTX 4090 x1", 4.0)


def test_of_a_job_that_says_no_last_step_only_the_speed_is_known() -> None:
    spec = replace(job(), train=None, command=("train",))
    (made,) = [one.offer.forecast for one in rank_offers([offer_row()], spec, LOCK, KNOWN)]
    assert made is not None
    assert (made.basis, made.steps_per_s, made.train_s) == ("guess", 2.0, pytest.approx(3600.0))


def test_a_job_without_gpus_takes_anywhere_as_long_as_its_runs_took_wherever_they_were() -> None:
    speeds = {
        ("RTX 4090", 1): Speed(steps_per_s=2.0, runs=1),
        ("RTX 3090", 1): Speed(steps_per_s=4.0, runs=2),
    }
    spec = train_job(resources=Resources(gpus=0), train=TrainConfig(steps=7200, batch=8))
    rows = [offer_row(), offer_row(machine_id=7, id=7, gpu_name="RTX 5090", dlperf=200.0)]
    for one in rank_offers(rows, spec, LOCK, SpeedHistory(speeds=speeds)):
        made = one.offer.forecast
        assert made is not None
        assert (made.basis, made.runs, made.steps_per_s) == ("measured", 3, 3.0)
        assert made.train_s == pytest.approx(2400.0)
        assert one.terms[0].text == "0.7 h at 3 steps/s, measured (3 runs)"
    (made,) = [one.offer.forecast for one in rank_offers([offer_row()], spec, LOCK, NEW)]
    assert made is not None
    assert (made.basis, made.train_s) == ("guess", pytest.approx(3600.0))


def test_a_host_that_was_used_before_takes_as_long_as_it_took() -> None:
    slow = SpeedHistory(boot_s={offer_row().machine_id: 1200.0})
    assert only(job(), slow).terms[2].text == "20 min as it took before"
    assert only(job(), slow).usd > only(job()).usd


def test_a_slow_start_is_a_risk_that_is_told() -> None:
    (estimate,) = rank_offers([offer_row(inet_down=250.0)], job(), LOCK, NEW)
    assert estimate.terms[-1].text.startswith("failure 0.3%, slow start ")


def test_a_smaller_image_is_fetched_sooner_and_one_of_unknown_size_counts_as_usual() -> None:
    def fetch(size_mb: int | None, **changes: Any) -> Term:
        image = replace(LOCK.images["cu130"], size_mb=size_mb)
        lock = LOCK.with_image("cu130", image)
        return rank_offers([offer_row(**changes)], replace(job(), image=None), lock, NEW)[0].terms[2]

    small, usual, large = fetch(1000), fetch(None), fetch(9000)
    assert small.usd < usual.usd < large.usd
    assert small.text == "2 min for 3.0 GB at 934 Mbit/s"
    assert fetch(1000, cuda_max_good=12.6).text == usual.text


def only(spec: JobSpec, known: SpeedHistory = NEW) -> Quote:
    return rank_offers([offer_row()], spec, LOCK, known)[0]


def test_a_speed_that_nobody_measured_is_estimated_where_a_step_was_estimated() -> None:
    spec = replace(job(), train=TrainConfig(steps=7200, batch=48, precision="bf16"))
    [estimate] = rank_offers([offer_row()], spec, LOCK, SpeedHistory(workloads=workloads()))
    forecast = estimate.offer.forecast
    assert (forecast.basis, forecast.source) == ("roofline", "40% of its peak")
    assert forecast.train_s == pytest.approx(7200 / (0.4 * 165.2))
    assert "estimated (40% of its peak)" in estimate.terms[0].text


def test_a_measured_speed_counts_before_an_estimated_one() -> None:
    spec = replace(job(), train=TrainConfig(steps=7200, batch=48))
    [estimate] = rank_offers([offer_row()], spec, LOCK, replace(KNOWN, workloads=workloads()))
    assert estimate.offer.forecast.basis == "measured"


def test_an_offer_that_cannot_hold_the_job_is_left_out_with_the_figure() -> None:
    spec = replace(job(), train=TrainConfig(batch=48))
    rows = [offer(), offer(id=7, gpu_ram=81_920)]
    left = funnel(rows, spec, LOCK, NOW, workloads(small_gb=31.0, large_gb=60.0))
    assert [row.gpu_memory_gb > 80 for row in left.left] == [True]
    assert [(limit.name, limit.text) for limit in left.removed] == [("memory", "needs 34.9 GB a GPU")]


def test_a_bill_may_go_on_for_five_minutes_unless_settled_bills_show_less() -> None:
    tails = [
        only(job(), SpeedHistory(bill_tail_s=seen)).offer.bill_tail_s for seen in (math.inf, 80.0, 900.0)
    ]
    assert tails == [300.0, 80.0, 300.0]
