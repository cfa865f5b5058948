"""What a job should cost on an offer, also on one that may be taken away."""

import math
from dataclasses import replace

import pytest

from tests.jobs import command_job, train_job
from tests.launcher.cost import spent
from vastrun.launcher.core import Forecast, Offer
from vastrun.launcher.core.batch import Budget, BudgetUse
from vastrun.launcher.core.job import Checkpoints, Limits
from vastrun.launcher.core.market import Basis
from vastrun.launcher.decisions import estimates, policy

MONTH = Budget(name="May 2027", usd=300.0, hint="vastrun config set budget.month_usd USD")


def test_with_checkpoints_each_interruption_costs_a_start_and_the_work_since_the_last_one() -> None:
    assert estimates.interruption_hours(10, 0.1, 0.2, 0.1) == pytest.approx(10 * 0.1 * 0.3)


def test_without_checkpoints_all_work_is_done_again() -> None:
    assert estimates.interruption_hours(10, 0.1, 0.0, None) == pytest.approx((math.e - 1) / 0.1 - 10)
    assert estimates.interruption_hours(1, 0.0, 0.0, None) == 0.0


@pytest.mark.parametrize("rate", [1.0, 1e3, 1e9])
def test_a_job_that_is_never_finished_costs_a_bounded_sum(rate: float) -> None:
    assert 0 < estimates.interruption_hours(100, rate, 0.1, None) <= 100 * 100.1


def test_how_much_is_lost_depends_on_how_often_the_job_saves() -> None:
    job = command_job()
    assert estimates.lost_hours(job, None) is None
    saves = replace(job, checkpoints=Checkpoints(files="checkpoints/*", every_s=720))
    assert estimates.lost_hours(saves, None) == pytest.approx(0.1)
    train = train_job()
    assert train.train is not None
    assert estimates.lost_hours(train, 1.0) == pytest.approx(train.train.checkpoint_every / 2 / 3600)
    assert estimates.lost_hours(train, None) == 0.1


def _offer(expected_usd: float, basis: Basis | None = None) -> Offer:
    forecast = None if basis is None else Forecast(ready_s=60, train_s=600, basis=basis, runs=1)
    offer = spent.run().offer
    assert offer is not None
    return replace(offer, usd_per_hour=1.0, expected_usd=expected_usd, forecast=forecast)


@pytest.mark.parametrize(
    ("expected_usd", "basis", "too_soon"),
    [
        (2.01, None, True),
        (2.01, "measured", True),
        (2.01, "guess", False),
        (2.0, "measured", False),  # just enough
        (0.0, None, False),  # nobody knows
    ],
)
def test_limits_end_a_job_too_soon_only_by_a_speed_that_is_known(
    expected_usd: float, basis: Basis | None, too_soon: bool
) -> None:
    job = replace(train_job(), limits=Limits(usd=2.0, hours=100.0))
    offer = _offer(expected_usd, basis)
    assert policy.worst_case_usd(job, offer) == 2.0
    assert estimates.is_cut_short(job, offer) is too_soon


def test_an_offer_names_its_expected_cost_and_its_speed_only_where_they_are_known() -> None:
    job = replace(train_job(), limits=Limits(usd=2.0, hours=100.0))
    assert "expected" not in estimates.offer_text(job, _offer(0.0))
    assert "speed" not in estimates.offer_text(job, _offer(1.5))
    assert estimates.offer_text(job, _offer(1.5, "measured")).startswith(
        "2 x RTX 4090 at $1.00/h; expected $1.50, at most $2.00 and "
    )
    assert estimates.offer_text(replace(job, nodes=2), _offer(0.5)).startswith(
        "2 machines, each 2 x RTX 4090 at $1.00/h; expected $1.00, at most $2.00 and "
    )


@pytest.mark.parametrize(("usd", "total"), [(9.0, "$2.00"), (1.2, "$1.20"), (0.5, "")])
def test_an_offer_names_what_all_attempts_may_cost(usd: float, total: str) -> None:
    job = replace(train_job(), limits=Limits(usd=usd, hours=0.5), retry={"lost": 2, "host": 1})
    text = estimates.offer_text(job, _offer(0.2))
    assert (f", {total} with all retries" in text) if total else ("retries" not in text)


def use(spent_usd: float, reserved_usd: float, budget: Budget = MONTH) -> BudgetUse:
    return BudgetUse(budget=budget, spent_usd=spent_usd, reserved_usd=reserved_usd)


def test_a_budget_that_is_used_up_to_the_last_cent_still_had_room() -> None:
    assert estimates.budget_error(use(250.0, 30.0), 20.0) is None
    assert estimates.budget_error(use(0.1, 0.2), 299.7) is None


def test_a_refusal_says_what_is_spent_and_reserved_what_it_would_take_and_what_to_type() -> None:
    error = estimates.budget_error(use(250.124, 40.0), 20.0)
    assert error is not None and error.exit_code == 9
    assert str(error) == (
        "May 2027: $250.13 is spent or may still be billed, and $40.00 reserved, of $300.00; "
        "a further run may cost $20.00, which would take $310.13"
    )
    assert error.hint == "vastrun config set budget.month_usd 310.13"


def test_what_costs_nothing_fits_also_where_more_is_held_than_the_budget_has_by_now() -> None:
    assert estimates.budget_error(use(500.0, 0.0), 0.0) is None
    assert estimates.budget_error(use(500.0, 0.0), 0.01) is not None


def test_a_budget_of_nothing_refuses_all_that_costs_and_one_without_a_limit_nothing() -> None:
    assert estimates.budget_error(use(0.0, 0.0, Budget(name="all runs", usd=0.0)), 0.01) is not None
    endless = use(1e9, 1e9, Budget(name="all runs", usd=math.inf))
    assert estimates.budget_error(endless, 1e9) is None and endless.left_usd == math.inf


def test_the_sum_that_a_refusal_names_is_one_with_which_the_run_fits() -> None:
    error = estimates.budget_error(use(1.001, 2.002), 297.3)
    assert error is not None
    enough_usd = float(error.hint.rpartition(" ")[2])
    assert estimates.budget_error(use(1.001, 2.002, Budget(name="May 2027", usd=enough_usd)), 297.3) is None
