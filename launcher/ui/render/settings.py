"""`config` in text and as a document: the settings with their origins, and where the budgets stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from launcher.core.batch import BudgetUse
from launcher.ui.render.table import table

Document = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class SettingsView:
    """The settings that hold now."""

    file: str
    values: Mapping[str, Any]
    """By dotted key; None: not set."""
    origins: Mapping[str, str]
    """By dotted key: `line 3` of the file, `VASTRUN_PROVIDER`, `default`."""
    faults: Sequence[str]
    uses: Sequence[BudgetUse]
    """Of the month's budget, then of that of all runs; infinite where none is set."""


def settings_text(view: SettingsView) -> str:
    """Return the file, a table of the values and one of the budgets."""
    values = [(key, _value(value), view.origins[key]) for key, value in view.values.items()]
    budgets = [
        (
            use.budget.name,
            *map(_usd, (use.budget.usd, use.spent_usd, use.reserved_usd, use.left_usd)),
        )
        for use in view.uses
    ]
    header = ("BUDGET OF", "LIMIT", "SPENT", "RESERVED", "LEFT")
    return "\n".join(
        [
            f"file: {view.file}",
            "",
            table(("KEY", "VALUE", "FROM"), values),
            "",
            table(header, budgets, right=range(1, 5)),
        ]
    )


def settings_document(view: SettingsView) -> Document:
    """Return the same for programs; null where there is no limit."""
    return {
        "file": view.file,
        "settings": [
            {"key": key, "value": value, "from": view.origins[key]} for key, value in view.values.items()
        ],
        "budgets": [
            {
                "of": use.budget.name,
                "since": use.budget.since,
                "limit_usd": _finite(use.budget.usd),
                "spent_usd": use.spent_usd,
                "reserved_usd": use.reserved_usd,
                "left_usd": _finite(use.left_usd),
            }
            for use in view.uses
        ],
        "faults": list(view.faults),
    }


def _value(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "-"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _usd(amount: float) -> str:
    return f"${amount:,.2f}" if isfinite(amount) else "-"


def _finite(amount: float) -> float | None:
    return amount if isfinite(amount) else None
