"""The user's settings: what the config file of this computer's user holds for all jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True, kw_only=True)
class LoadedSettings:
    """The config file, as far as it can be understood."""

    settings: Settings = field(default_factory=Settings)
    """A value with a fault is left out of it."""
    faults: Sequence[str] = ()
    """One a line: `file:line: key: fault`. While there are any, nothing that costs money is begun."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """By the dotted key of each value that the file sets, where it stands, from 1."""
