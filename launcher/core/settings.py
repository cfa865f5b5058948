"""The user's settings: what the config file of this computer's user holds for all jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Ge, MinLen

Dollars = Annotated[float, Ge(0)]


@dataclass(frozen=True, kw_only=True)
class BudgetSettings:
    """What all runs of the ledger may cost together; 0: no machine that costs money is rented."""

    month_usd: Dollars | None = None
    """For the runs that were begun in this calendar month, by local time, and those that are open."""
    usd: Dollars | None = None
    """For all runs that there ever were."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The config file as a noun."""

    provider: Annotated[str, MinLen(1)] | None = None
    """What `--provider` is where it is not given."""
    budget: BudgetSettings = field(default_factory=BudgetSettings)
