"""Whether a budget has room, and what is said where it has none."""

from __future__ import annotations

import math

from vastrun.launcher.core.batch import Budget, BudgetUse
from vastrun.launcher.decisions.budgets import budget_error

MONTH = Budget(name="May 2027", usd=300.0, hint="vastrun config set budget.month_usd USD")


def use(spent_usd: float, reserved_usd: float, budget: Budget = MONTH) -> BudgetUse:
    return BudgetUse(budget=budget, spent_usd=spent_usd, reserved_usd=reserved_usd)


def test_a_budget_that_is_used_up_to_the_last_cent_still_had_room() -> None:
    assert budget_error(use(250.0, 30.0), 20.0) is None
    assert budget_error(use(0.1, 0.2), 299.7) is None


def test_a_refusal_says_what_is_spent_and_reserved_what_it_would_take_and_what_to_type() -> None:
    error = budget_error(use(250.124, 40.0), 20.0)
    assert error is not None and error.exit_code == 9
    assert str(error) == (
        "May 2027: $250.12 is spent and $40.00 reserved of $300.00; "
        "a further run may cost $20.00, which would take $310.13"
    )
    assert error.hint == "vastrun config set budget.month_usd 310.13"


def test_what_costs_nothing_fits_also_where_more_is_held_than_the_budget_has_by_now() -> None:
    assert budget_error(use(500.0, 0.0), 0.0) is None
    assert budget_error(use(500.0, 0.0), 0.01) is not None


def test_a_budget_of_nothing_refuses_all_that_costs_and_one_without_a_limit_nothing() -> None:
    assert budget_error(use(0.0, 0.0, Budget(name="all runs", usd=0.0)), 0.01) is not None
    endless = use(1e9, 1e9, Budget(name="all runs", usd=math.inf))
    assert budget_error(endless, 1e9) is None and endless.left_usd == math.inf


def test_the_sum_that_a_refusal_names_is_one_with_which_the_run_fits() -> None:
    error = budget_error(use(1.001, 2.002), 297.3)
    assert error is not None
    enough_usd = float(error.hint.rpartition(" ")[2])
    assert budget_error(use(1.001, 2.002, Budget(name="May 2027", usd=enough_usd)), 297.3) is None
