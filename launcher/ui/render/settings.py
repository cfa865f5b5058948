"""`config`, as text and as a document: the settings with their origins, and the state of the budgets."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from vastrun.launcher.core.batch import BudgetUse
from vastrun.launcher.ui.documents.document import Document
from vastrun.launcher.ui.render.table import table


class SettingDocument(Document):
    """A setting that holds now."""

    key: str
    value: str | float | bool | Sequence[str] | None
    """Null: not set."""
    origin: str
    """`line 3` of the file, `VASTRUN_PROVIDER`, `default`."""


class BudgetState(Document):
    """The state of a budget; null where there is no limit."""

    of: str
    since: float | None
    limit_usd: float | None
    spent_usd: float
    reserved_usd: float
    left_usd: float | None

    @classmethod
    def show(cls, use: BudgetUse) -> BudgetState:
        """Make the document of a budget."""
        limit_usd, left_usd = (x if isfinite(x) else None for x in (use.budget.usd, use.left_usd))
        return cls.fill(use, use.budget, of=use.budget.name, limit_usd=limit_usd, left_usd=left_usd)


class SettingsDocument(Document):
    """The user's settings and budgets."""

    file: str
    settings: Sequence[SettingDocument]
    budgets: Sequence[BudgetState]
    """The month's budget, then that of all runs."""
    faults: Sequence[str]


def settings_text(shown: SettingsDocument) -> str:
    """Write the path of the file, a table of the settings and one of the budgets."""
    values = [(each.key, _value(each.value), each.origin) for each in shown.settings]
    budgets = [
        (each.of, *map(_usd, (each.limit_usd, each.spent_usd, each.reserved_usd, each.left_usd)))
        for each in shown.budgets
    ]
    header = ("BUDGET OF", "LIMIT", "SPENT", "RESERVED", "LEFT")
    return "\n".join(
        [
            f"file: {shown.file}",
            "",
            table(("KEY", "VALUE", "FROM"), values),
            "",
            table(header, budgets, right=range(1, 5)),
        ]
    )


def _value(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "-"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _usd(amount: float | None) -> str:
    return "-" if amount is None else f"${amount:,.2f}"
