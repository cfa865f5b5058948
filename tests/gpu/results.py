"""Results: of all checks, as one JSON, as lines to read, and as the table of docs/benchmarks.md."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.gpu.check import Figure, Result, State

BEGIN, END = "<!-- gpu: begin -->", "<!-- gpu: end -->"


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was found, and on what machine."""

    machine: str
    """One line."""
    gpus: int
    """0: on a CPU, of which nothing is claimed."""
    results: Sequence[Result]

    @property
    def failed(self) -> Sequence[Result]:
        """The checks that failed."""
        return [result for result in self.results if result.state is State.FAILED]


def as_json(report: Report) -> str:
    """Return the file's text."""
    return json.dumps(
        {
            "machine": report.machine,
            "gpus": report.gpus,
            "seconds": round(sum(result.seconds for result in report.results), 1),
            "checks": [_record(result) for result in report.results],
        },
        indent=1,
        allow_nan=False,
    )


def line_of(result: Result) -> str:
    """Return a line, or a few, of a terminal."""
    told = f"{result.state.value:<8} {result.name:<14} {result.seconds:5.1f} s  {result.text}"
    more = [result.why, *([result.seen.text] if result.seen.text else []), *map(str, result.seen.figures)]
    return "\n".join([told, *(f"{'':9}{line}" for text in more for line in text.splitlines())])


def table(report: Report) -> str:
    """Return the table, in Markdown. Raises ValueError where nothing was done on a GPU."""
    if not report.gpus:
        raise ValueError("nothing was done on a GPU: there is no row to claim")
    rows = [row for result in report.results for row in _rows(result)]
    head = ["| on GPUs | found | limit |", "|---|---|---|"]
    return "\n".join([f"{report.machine[:1].upper()}{report.machine[1:]}:", "", *head, *rows])


def placed(page: str, text: str) -> str:
    """Return the page with the text between its marks. Raises ValueError for a page without them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} … {END}")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def _rows(result: Result) -> list[str]:
    if result.state is State.NOT_RUN:
        return [_row(result.text, f"not run: {result.why}", "-")]
    if result.state is State.FAILED and not result.seen.figures:
        return [_row(result.text, f"**failed**: {(result.why.splitlines() or [''])[-1]}", "-")]
    if not result.seen.figures:
        return [_row(result.text, result.seen.text or "holds", "-")]
    names = [result.text, *["…"] * (len(result.seen.figures) - 1)]
    return [
        _row(name, _found(figure), str(figure.limit or "-"))
        for name, figure in zip(names, result.seen.figures, strict=True)
    ]


def _found(figure: Figure) -> str:
    return str(figure) if figure.holds else f"**missed**: {figure}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _record(result: Result) -> dict[str, Any]:
    return {
        "name": result.name,
        "text": result.text,
        "state": result.state.value,
        "why": result.why,
        "seen": result.seen.text,
        "seconds": round(result.seconds, 1),
        "figures": [
            {
                "name": figure.name,
                "value": figure.value if math.isfinite(figure.value) else None,
                "unit": figure.unit,
                "limit": str(figure.limit) if figure.limit else None,
                "holds": figure.holds,
            }
            for figure in result.seen.figures
        ],
    }
