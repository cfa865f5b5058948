"""Sections of a run's page: its timeline, and its failure with hang, traceback and the error in the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from vastrun.contract.texts import how_many
from vastrun.launcher.commands.explanation import Explanation
from vastrun.launcher.commands.report import PhaseSpan, RunReport
from vastrun.launcher.core import Phase, StepEnd
from vastrun.launcher.ui.render.amounts import duration, usd_parts
from vastrun.launcher.ui.render.loglines import LogLine, first_error, lines_of, parse_line, shown
from vastrun.launcher.ui.render.verdict import cause_line
from vastrun.launcher.ui.report import page

LINES_BEFORE, LINES_AFTER = 12, 40
"""Log lines to show before and after an error."""
_TAIL_LINES = 24
_MAX_LINES = 80
"""Maximum lines of a traceback or stack."""
_MAX_LINE_CHARACTERS = 300
"""Maximum characters of a line; the log has all of it."""
_WIDTH = 1000
_MIN_BAR = 3
"""Minimum width of a bar, so that the shortest phase is visible."""
WORDS: Mapping[Phase, str] = {
    Phase.PLAN: "choose an offer",
    Phase.RENT: "rent the machine",
    Phase.BOOT: "wait for it, arm its lease",
    Phase.SHIP: "upload the job",
    Phase.TRAIN: "set up and train",
    Phase.COLLECT: "download the outputs",
    Phase.DESTROY: "destroy the machine, confirm it",
    Phase.ENDED: "",
}


def failure(report: RunReport) -> page.Html | str:
    """Write the error in its context; empty for a run that succeeded or is open."""
    run = report.run
    if run.cause is None:
        return ""
    parts = [*_hang(report), *_traceback(report), _log_excerpt(report.log_tail, report.explanation)]
    return page.joined(*parts) or page.note(page.shortened(cause_line(run)) or "Nothing more is known.")


def newest_lines(report: RunReport) -> page.Html | str:
    """Write the end of the log of an open run; empty for an ended one."""
    lines = [line for line in map(parse_line, lines_of(report.log_tail)) if line is not None]
    if report.run.phase is Phase.ENDED or not lines:
        return ""
    return _block(lines[-_TAIL_LINES:], None, "Newest lines")


def _hang(report: RunReport) -> Iterator[page.Html]:
    outcome = report.explanation.outcome
    if outcome is None or outcome.hang is None:
        return
    hang = outcome.hang
    doing = f" ({hang.activity})" if hang.activity else ""
    pairs = [
        (f"rank {hang.rank}", f"made no progress for {duration(hang.stalled_s)} at step {hang.step}{doing}"),
        ("in", page.element("code", page.shortened(hang.frame)) if hang.frame else ""),
        ("others", "; ".join(map(page.shortened, hang.waits[:8]))),
    ]
    yield page.facts(pairs)
    if report.stack:
        yield _text_block(f"The stack of rank {hang.rank}", report.stack)


def _traceback(report: RunReport) -> Iterator[page.Html]:
    outcome = report.explanation.outcome
    failed = outcome.first_failure if outcome else None
    if failed is not None and (output := failed.traceback or failed.last_lines):
        yield _text_block(f"Rank {failed.rank} failed first, at step {failed.step}", output)


def _text_block(title: str, text: str) -> page.Html:
    lines = [short_line(line) for line in text.rstrip().split("\n")]
    left_out = len(lines) - _MAX_LINES
    if left_out > 0:
        lines = [*lines[: _MAX_LINES // 2], f"… {how_many(left_out, 'line')} …", *lines[-_MAX_LINES // 2 :]]
    block = page.element("pre", page.element("code", "\n".join(lines)))
    return page.element("div", page.element("h3", title), page.scrolled(title, block))


def _log_excerpt(tail: str, explanation: Explanation) -> page.Html | str:
    """Write the error at the end of a log with its context; without one, the last lines."""
    lines = [line for line in map(parse_line, lines_of(tail)) if line is not None]
    if not lines:
        return ""
    found = _error_in(lines, explanation)
    if found is None:
        return _block(lines[-_TAIL_LINES:], None, "The end of the log")
    at = next(number for number, line in enumerate(lines) if line is found)
    start = max(0, at - LINES_BEFORE)
    return _block(lines[start : at + LINES_AFTER], at - start, "The error in the log")


def short_line(text: str) -> str:
    """Cut a line to the length that a page shows."""
    text = shown(text)
    return text if len(text) <= _MAX_LINE_CHARACTERS else text[: _MAX_LINE_CHARACTERS - 1] + "…"


def _error_in(lines: Sequence[LogLine], explanation: Explanation) -> LogLine | None:
    """Return the line to mark: the exception at the end of a traceback, else the first line of the error."""
    outcome = explanation.outcome
    if outcome is not None and outcome.hang is not None:
        # A hang raises nothing, and what ranks print when they are killed is not the error.
        found = (line for line in lines if line.source == "supervisor" and outcome.detail in line.text)
        return next(found, None)
    failed = next((end.step for end in explanation.steps if end.exit_code), "")
    rank = None if outcome is None or outcome.first_failure is None else outcome.first_failure.rank
    sources = [f"rank{rank}"] if rank is not None else []
    for source in (*sources, *([failed] if failed else []), ""):
        if error := first_error(lines, source):
            # The exception is the first unindented line after an indented one.
            if not error[0].text.startswith("Traceback"):
                return error[0]
            pairs = pairwise(error)
            return next(
                (after for line, after in pairs if line.text[:1] == " " and after.text[:1] != " "), error[0]
            )
    return None


def _block(lines: Sequence[LogLine], marked: int | None, title: str) -> page.Html:
    start = lines[0].at
    rows = [_row(line, start, is_marked=number == marked) for number, line in enumerate(lines)]
    block = page.element("table", page.element("tbody", *rows), class_="log")
    return page.element("div", page.element("h3", title), page.scrolled(title, block))


def _row(line: LogLine, start: float, *, is_marked: bool) -> page.Html:
    words = page.element("mark", short_line(line.text)) if is_marked else short_line(line.text)
    return page.element(
        "tr",
        page.element("td", f"+{line.at - start:.1f}s", class_="num faint"),
        page.element("td", line.source, class_="faint"),
        page.element("td", page.element("code", words)),
        class_="marked" if is_marked else None,
    )


def timeline(spans: Sequence[PhaseSpan], steps: Sequence[StepEnd]) -> page.Html | str:
    """Draw the phases on a common time axis, and the steps on the machine folded below."""
    if not spans:
        return ""
    dollars = usd_parts([span.usd for span in spans])
    start, whole_s = spans[0].start, max(spans[-1].end - spans[0].start, 1e-9)
    rows = [
        (
            page.joined(span.phase.value, page.element("small", WORDS[span.phase])),
            _bar(span, start, whole_s),
            duration(span.seconds),
            f"{span.seconds / whole_s:.0%}",
            f"${spent:.3f}",
        )
        for span, spent in zip(spans, dollars, strict=True)
    ]
    columns = ("Phase", page.element("span", "From start to end", class_="hidden"), "Time", "Share", "Cost")
    classes = (None, "bar", "num", "num faint", "num")
    drawn = page.table("Timeline", columns, rows, classes=classes, right=(2, 3, 4), class_="timeline")
    return page.element("div", drawn, _steps(steps))


def _bar(span: PhaseSpan, start: float, whole_s: float) -> page.Html:
    width = max(_MIN_BAR, _WIDTH * span.seconds / whole_s)
    x = min(_WIDTH * (span.start - start) / whole_s, _WIDTH - width)
    return page.element(
        "svg",
        page.element("rect", x=0, y=7, width=_WIDTH, height=2, class_="rail"),
        page.element(
            "rect", x=f"{x:.1f}", y=0, width=f"{width:.1f}", height=16, rx=2, class_=f"span {span.phase}"
        ),
        viewBox=f"0 0 {_WIDTH} 16",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def _steps(ends: Sequence[StepEnd]) -> page.Html | str:
    """Write the duration and exit code of each step on the machine."""
    if not ends:
        return ""
    rows = [
        (
            end.step,
            duration(end.seconds),
            f"exit code {end.exit_code}" if end.exit_code else "ok",
            end.last_line,
        )
        for end in ends
    ]
    columns, classes = ("Step", "Time", "End", "Last line"), (None, "num", "", "faint")
    steps = page.table("Steps on the machine", columns, rows, classes=classes)
    return page.folded(f"{how_many(len(ends), 'step')} on the machine", steps)
