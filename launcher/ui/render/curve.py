"""The loss over the steps as a picture: a small SVG that is readable on light and on dark pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from launcher.gate.metrics import Curve
from launcher.gate.text import one_line
from launcher.ui.render.axes import Axis, count_text, linear, logarithmic, wants_logarithm

_WIDTH, _HEIGHT = 800, 450
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 24, 84, 56
_COLORS = ("#2f7ed8", "#e0701d", "#3a9a5b")
"""Told apart by the colour-blind, and seen on white as on black."""
_MARKED = 60
"""A curve of so few points shows each of them."""
_TITLE_CHARACTERS = 80
_GRID, _AXIS = 'class="grid" stroke="#d8dee4"', 'class="axis" stroke="#8c959f"'
_STYLE = (
    "text{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#24292f}"
    ".faint{fill:#59636e}.grid{stroke:#d8dee4}.axis{stroke:#8c959f}.paper{fill:#ffffff}"
    "@media (prefers-color-scheme:dark){text{fill:#e6edf3}.faint{fill:#9198a1}"
    ".grid{stroke:#2f353d}.axis{stroke:#656c76}.paper{fill:#0d1117}}"
)


def loss_picture(title: str, below: str, curves: Sequence[Curve]) -> str:
    """Draw the curves, with a line of title and one below it. Empty when there is no point to draw."""
    drawn = [curve for curve in curves if curve.points]
    if not drawn:
        return ""
    values = [value for curve in drawn for _, value in curve.points]
    steps = [step for curve in drawn for step in (*(step for step, _ in curve.points), *curve.lost)]
    is_log = wants_logarithm(values)
    x = linear(min(steps), max(steps), _LEFT, _WIDTH - _RIGHT, whole=True)
    y = (logarithmic if is_log else linear)(min(values), max(values), _HEIGHT - _BOTTOM, _TOP)
    parts = [
        *_frame(title, below),
        *_grid(x, y, "loss (logarithmic)" if is_log else "loss"),
        *(part for number, curve in enumerate(drawn) for part in _line(curve, _COLORS[number], x, y)),
        *_legend(drawn),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _frame(title: str, below: str) -> Iterator[str]:
    title, below = (_text(text) for text in (title, below))
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
    )
    yield f"<title>{title}: {below}</title>"
    yield f"<style>{_STYLE}</style>"
    yield f'<rect class="paper" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="#ffffff"/>'
    yield f'<text x="{_LEFT}" y="30" font-size="17" font-weight="600">{title}</text>'
    yield f'<text class="faint" x="{_LEFT}" y="50" font-size="12">{below}</text>'


def _text(text: str) -> str:
    text = one_line(text)
    return escape(text if len(text) <= _TITLE_CHARACTERS else text[: _TITLE_CHARACTERS - 1] + "…")


def _grid(x: Axis, y: Axis, label: str) -> Iterator[str]:
    bottom, right, middle = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT, (_TOP + _HEIGHT - _BOTTOM) / 2
    for value in y.ticks:
        at = y.place(value)
        yield f'<line {_GRID} x1="{_LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield (
            f'<text class="faint" x="{_LEFT - 8}" y="{at + 4:.1f}" font-size="12" text-anchor="end">'
            f"{value:.4g}</text>"
        )
    yield f'<line {_AXIS} x1="{_LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>'
    for value in x.ticks:
        at = x.place(value)
        yield f'<line {_AXIS} x1="{at:.1f}" x2="{at:.1f}" y1="{bottom}" y2="{bottom + 5}"/>'
        yield (
            f'<text class="faint" x="{at:.1f}" y="{bottom + 20}" font-size="12" text-anchor="middle">'
            f"{count_text(value)}</text>"
        )
    yield (
        f'<text class="faint" x="{(_LEFT + right) / 2:.1f}" y="{_HEIGHT - 12}" font-size="13" '
        'text-anchor="middle">step</text>'
    )
    yield (
        f'<text class="faint" x="20" y="{middle:.1f}" font-size="13" text-anchor="middle" '
        f'transform="rotate(-90 20 {middle:.1f})">{label}</text>'
    )


def _line(curve: Curve, color: str, x: Axis, y: Axis) -> Iterator[str]:
    places = [(x.place(step), y.place(value)) for step, value in curve.points]
    path = " ".join(f"{across:.1f},{down:.1f}" for across, down in places)
    yield f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2" stroke-linejoin="round"/>'
    if len(places) <= _MARKED:
        yield from (
            f'<circle cx="{across:.1f}" cy="{down:.1f}" r="2.5" fill="{color}"/>' for across, down in places
        )
    for step in curve.lost:
        cross = f"M{x.place(step) - 4:.1f} {_TOP - 4}l8 8m0 -8l-8 8"
        yield f'<path d="{cross}" stroke="{color}" stroke-width="2" fill="none"/>'


def _legend(curves: Sequence[Curve]) -> Iterator[str]:
    at = _LEFT
    for curve, color in zip(curves, _COLORS, strict=False):
        told = [curve.name]
        told += [f"mean of {curve.averaged} values each"] if curve.averaged > 1 else []
        told += ["x: not finite"] if curve.lost else []
        name = ", ".join(told)
        yield f'<rect x="{at}" y="62" width="18" height="4" rx="2" fill="{color}"/>'
        yield f'<text x="{at + 24}" y="68" font-size="12">{name}</text>'
        at += 44 + 7 * len(name)
