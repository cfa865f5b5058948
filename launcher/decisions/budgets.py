"""Budgets: whether one covers a run, and the error where it does not."""

from __future__ import annotations

import math

from vastrun.launcher.core.batch import BudgetUse
from vastrun.launcher.core.errors import BudgetError

_ROUNDING_USD = 1e-9


def budget_error(use: BudgetUse, usd: float) -> BudgetError | None:
    """Return the error for a budget that does not cover `usd` more; None where it does.

    A free run always fits, even where more is reserved than the budget has by now.
    """
    budget = use.budget
    if usd <= 0 or use.held_usd + usd <= budget.usd + _ROUNDING_USD:
        return None
    needed_usd = math.ceil((use.held_usd + usd) * 100 - _ROUNDING_USD) / 100
    return BudgetError(
        f"{budget.name}: ${use.spent_usd:.2f} is spent and ${use.reserved_usd:.2f} reserved of "
        f"${budget.usd:.2f}; a further run may cost ${usd:.2f}, which would take ${needed_usd:.2f}",
        hint=budget.hint.replace("USD", f"{needed_usd:.2f}"),
        budget=budget.name,
    )
