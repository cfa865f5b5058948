"""HTML for notebooks: a card, a small curve, a table. Styles are inline, because notebooks remove others.

Text has the notebook's own color, so that cards are readable in light and dark themes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ui.render.axes import linear, logarithmic, wants_logarithm

_MAX_CHARACTERS = 200
_WIDTH, _HEIGHT, _MARGIN = 300, 64, 4
_MAX_POINTS = 150
_MAX_ROWS = 50
_FAINT = "opacity:.7"
_FONT = "font:13px/1.5 system-ui,sans-serif;color:inherit;text-align:left"
_CARD = (
    "border:1px solid rgba(128,128,128,.45);border-radius:6px;padding:8px 12px;margin:4px 0;overflow-x:auto;"
    f"display:inline-block;max-width:100%;box-sizing:border-box;{_FONT}"
)
_BADGE = "color:#fff;border-radius:4px;padding:1px 7px;font-weight:600;background:"
_TONES: Mapping[str, str] = {"good": "#1a7f37", "bad": "#b42318", "busy": "#1a5fd0", "still": "#5b6470"}
"""Background of a badge with white text, by what the state means."""


def text(value: object) -> str:
    """Return the value as one short line that is safe in HTML, within an attribute, too."""
    line = one_line(str(value))
    return escape(line if len(line) <= _MAX_CHARACTERS else f"{line[: _MAX_CHARACTERS - 1]}…")


def card(name: str, state: str, tone: str, facts: Mapping[str, str], *parts: str) -> str:
    """Return a card: name, state, facts by title, and further HTML. `tone`: good, bad, busy or still."""
    badge = f'<span style="{_BADGE}{_TONES[tone]}">{text(state)}</span>'
    lines = "".join(
        f'<div><span style="{_FAINT}">{text(title)}</span> {text(value)}</div>'
        for title, value in facts.items()
        if value
    )
    return f'<div style="{_CARD}"><div><b>{text(name)}</b> {badge}</div>{lines}{"".join(parts)}</div>'


def curve(name: str, points: Sequence[tuple[float, float]]) -> str:
    """Return a small picture of the values, with the first and the last one; empty with fewer than two."""
    drawn = _thinned([point for point in points if all(map(math.isfinite, point))])
    if len(drawn) < 2:
        return ""
    steps, values = [step for step, _ in drawn], [value for _, value in drawn]
    x = linear(steps[0], steps[-1], _MARGIN, _WIDTH - _MARGIN, whole=True)
    axis = logarithmic if wants_logarithm(values) else linear
    y = axis(min(values), max(values), _HEIGHT - _MARGIN, _MARGIN)
    places = " ".join(f"{x.place(step):.1f},{y.place(value):.1f}" for step, value in drawn)
    caption = f"{name} {values[0]:.3g} to {values[-1]:.3g}, step {steps[0]:,.0f} to {steps[-1]:,.0f}"
    return (
        f'<svg role="img" aria-label="{text(caption)}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" style="display:block;max-width:100%">'
        f'<polyline points="{places}" fill="none" stroke="currentColor" stroke-width="1.5"/></svg>'
        f'<div style="{_FAINT}">{text(caption)}</div>'
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[object]], *, wraps: bool = False) -> str:
    """Return a table of at most 50 rows; the line below counts the others. `wraps`: long cells do."""
    space = "" if wraps else ";white-space:nowrap"
    cell = f"padding:1px 8px;text-align:left;border-bottom:1px solid rgba(128,128,128,.3){space}"
    head = "".join(f'<th style="{cell}">{text(name)}</th>' for name in heads)
    body = "".join(
        "<tr>" + "".join(f'<td style="{cell}">{text(value)}</td>' for value in row) + "</tr>"
        for row in rows[:_MAX_ROWS]
    )
    more = len(rows) - _MAX_ROWS
    rest = f'<div style="{_FAINT}">{more:,} more</div>' if more > 0 else ""
    return (
        f'<table style="border-collapse:collapse;background:none;margin-top:4px;{_FONT}">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"
    )


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Return at most 150 of the points, evenly spread, with the first and the last."""
    if len(points) <= _MAX_POINTS:
        return points
    last = len(points) - 1
    return [points[round(number * last / (_MAX_POINTS - 1))] for number in range(_MAX_POINTS)]
