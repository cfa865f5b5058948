"""What two runs differ in, as a table and as a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from launcher.core import Run
from launcher.decisions.comparing import Difference, Value
from launcher.gate.text import one_line
from launcher.ui.render.table import short, table

_CELL = 60
_UNITS = {"usd": "${:.3f}", "usd_per_hour": "${:.3f}"}


def differences_text(one: Run, other: Run, found: Sequence[Difference], width: int | None) -> str:
    """Return a line for each difference. `width`: of the terminal."""
    if not found:
        return f"{one.id} and {other.id} differ in nothing"
    cells = [
        (
            each.section,
            one_line(each.key),
            _shown(each.key, each.one),
            _shown(each.key, each.other),
            _change(each),
        )
        for each in found
    ]
    header = ("PART", "KEY", one.id, other.id, "CHANGE")
    return table(header, cells, right=(4,), cut=(2, 3, 1), width=width)


def differences_document(one: Run, other: Run, found: Sequence[Difference]) -> Mapping[str, Any]:
    """Return the differences for programs."""
    return {
        "runs": [one.id, other.id],
        "differences": [{**asdict(each), "change": each.change} for each in found],
    }


def _shown(key: str, value: Value) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return _UNITS.get(key, "{:.4g}").format(value)
    return short(one_line(str(value)), _CELL)


def _change(difference: Difference) -> str:
    change = difference.change
    if change is None:
        return ""
    return f"{change:+.1%}" if abs(change) < 10 else f"{change + 1:.0f}x"
