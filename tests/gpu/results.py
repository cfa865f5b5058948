"""Results: of all checks, as one JSON file, as lines to read, and as the table of docs/benchmarks.md."""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from benchmarks.figures import Limit
from tests.gpu.check import Check, Figure, Result, Seen, State
from vastrun.contract.records import write_atomically

BEGIN, END = "<!-- gpu: begin -->", "<!-- gpu: end -->"
_JSON, _TABLE = "results.json", "table.md"


@dataclass(frozen=True, kw_only=True)
class Report:
    """What one call found, and on what machine."""

    machine: str
    """One line."""
    gpus: int
    """0: on a CPU, of which nothing is claimed."""
    results: Sequence[Result]

    @property
    def failed(self) -> Sequence[Result]:
        """The checks that failed."""
        return [result for result in self.results if result.state is State.FAILED]

    @property
    def left(self) -> Sequence[Result]:
        """The checks for which there was no time."""
        return [result for result in self.results if result.state is State.LEFT]

    def without(self, names: Collection[str]) -> Self:
        """Return the report without these checks."""
        return replace(self, results=[result for result in self.results if result.name not in names])


def write(folder: Path, reports: Sequence[Report]) -> None:
    """Write the results and, of GPUs, the table: each file whole, whenever this process is killed."""
    write_atomically(folder / _JSON, as_json(reports) + "\n")
    if any(report.gpus for report in reports):
        write_atomically(folder / _TABLE, table(reports) + "\n")


def read(folder: Path) -> list[Report]:
    """Return what earlier calls wrote to the folder; nothing where there is no file of this form."""
    try:
        record = json.loads((folder / _JSON).read_text(encoding="utf-8"))
        return [_report(each) for each in record["runs"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def without(reports: Sequence[Report], names: Collection[str]) -> list[Report]:
    """Return what stays of earlier reports when these checks are done again."""
    kept = [report.without(names) for report in reports]
    return [report for report in kept if report.results]


def as_json(reports: Sequence[Report]) -> str:
    """Return the file's text."""
    return json.dumps({"runs": [_record(report) for report in reports]}, indent=1, allow_nan=False)


def line_of(result: Result) -> str:
    """Return a line, or a few, of a terminal."""
    if result.state in (State.NOT_RUN, State.LEFT):
        return f"{result.state.value:<8} {result.name:<14} {result.why}"
    head = f"{result.state.value:<8} {result.name:<14} {result.seconds:5.1f} s  {result.text}"
    more = [result.why, *([result.seen.text] if result.seen.text else []), *map(str, result.seen.figures)]
    return "\n".join([head, *(f"{'':9}{line}" for text in more for line in text.splitlines())])


def summary(report: Report, checks: Mapping[str, Check]) -> list[str]:
    """Return the last lines of a terminal: how many failed, and what is left."""
    done = sum(result.state in (State.PASSED, State.FAILED) for result in report.results)
    lines = [f"{len(report.failed)} of {done} checks failed"]
    if left := [result.name for result in report.left]:
        minutes = math.ceil(sum(checks[name].expected_s for name in left) / 60)
        lines.append(f"left, about {minutes} min: make gpu CHECKS='{' '.join(left)}'")
    return lines


def table(reports: Sequence[Report]) -> str:
    """Return the tables, in Markdown, one for each call on GPUs. Raises ValueError where there was none."""
    on_gpus = [report for report in reports if report.gpus]
    if not on_gpus:
        raise ValueError("nothing was done on a GPU: there is no row to claim")
    return "\n\n".join(_table(report) for report in on_gpus)


def placed(page: str, text: str) -> str:
    """Return the page with the text between its marks. Raises ValueError for a page without them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} … {END}")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def _table(report: Report) -> str:
    rows = [row for result in report.results for row in _rows(result)]
    head = ["| on GPUs | found | limit |", "|---|---|---|"]
    return "\n".join([f"{report.machine[:1].upper()}{report.machine[1:]}:", "", *head, *rows])


def _rows(result: Result) -> list[str]:
    if result.state in (State.NOT_RUN, State.LEFT):
        return [_row(result.text, f"not run: {result.why}", "-")]
    if result.state is State.FAILED and not result.seen.figures:
        return [_row(result.text, f"**failed**: {(result.why.splitlines() or [''])[-1]}", "-")]
    found = [(_found(figure), str(figure.limit or "-")) for figure in result.seen.figures]
    if result.seen.text or not found:
        found.append((result.seen.text or "holds", "-"))
    names = [result.text, *["…"] * (len(found) - 1)]
    return [_row(name, *cells) for name, cells in zip(names, found, strict=True)]


def _found(figure: Figure) -> str:
    return str(figure) if figure.holds else f"**missed**: {figure}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _record(report: Report) -> dict[str, Any]:
    return {
        "machine": report.machine,
        "gpus": report.gpus,
        "seconds": round(sum(result.seconds for result in report.results), 1),
        "checks": [_record_of(result) for result in report.results],
    }


def _record_of(result: Result) -> dict[str, Any]:
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
                "limit": asdict(figure.limit) if figure.limit else None,
                "holds": figure.holds,
            }
            for figure in result.seen.figures
        ],
    }


def _report(record: dict[str, Any]) -> Self:
    results = [_result(each) for each in record["checks"]]
    return Report(machine=record["machine"], gpus=record["gpus"], results=results)


def _result(record: dict[str, Any]) -> Result:
    figures = [
        Figure(
            name=figure["name"],
            value=math.nan if figure["value"] is None else figure["value"],
            unit=figure["unit"],
            limit=Limit(**figure["limit"]) if figure["limit"] else None,
        )
        for figure in record["figures"]
    ]
    return Result(
        name=record["name"],
        text=record["text"],
        state=State(record["state"]),
        why=record["why"],
        seen=Seen(text=record["seen"], figures=figures),
        seconds=record["seconds"],
    )
