"""Why a run failed: the hang, the traceback, and the error in the log with the lines around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from vastrun.launcher.commands.queries import Explanation
from vastrun.launcher.commands.report import RunReport
from vastrun.launcher.core import Phase
from vastrun.launcher.ui.render.amounts import duration
from vastrun.launcher.ui.render.loglines import LogLine, first_error, lines_of, parse_line, shown
from vastrun.launcher.ui.render.summary import cause_line
from vastrun.launcher.ui.report.markup import Html, element, joined
from vastrun.launcher.ui.report.page import facts, note, scrolled, shortened

BEFORE, AFTER = 12, 40
_TAIL = 24
_LINES = 80
"""Of a text, as many as a page shows."""
_CHARACTERS = 300
"""Of a line; the log has all of it."""


def failure(report: RunReport) -> Html | str:
    """Show the error in its context; empty for a run that did well, or that has not ended."""
    run = report.run
    if run.cause is None:
        return ""
    parts = [*_hang(report), *_traceback(report), _log_excerpt(report.log_tail, report.explanation)]
    return joined(*parts) or note(shortened(cause_line(run)) or "Nothing more is known.")


def newest_lines(report: RunReport) -> Html | str:
    """Show the end of the log of a run that goes on; empty for one that has ended."""
    lines = [line for line in map(parse_line, lines_of(report.log_tail)) if line is not None]
    if report.run.phase is Phase.ENDED or not lines:
        return ""
    return _block(lines[-_TAIL:], None, "Its newest lines")


def _hang(report: RunReport) -> Iterator[Html]:
    outcome = report.explanation.outcome
    if outcome is None or outcome.hang is None:
        return
    hang = outcome.hang
    doing = f" ({hang.activity})" if hang.activity else ""
    pairs = [
        (f"rank {hang.rank}", f"made no progress for {duration(hang.stalled_s)} at step {hang.step}{doing}"),
        ("in", element("code", shortened(hang.frame)) if hang.frame else ""),
        ("others", "; ".join(map(shortened, hang.waits[:8]))),
    ]
    yield facts(pairs)
    if report.stack:
        yield _text_block(f"The stack of rank {hang.rank}", report.stack)


def _traceback(report: RunReport) -> Iterator[Html]:
    outcome = report.explanation.outcome
    failure = None if outcome is None else outcome.first_failure
    said = "" if failure is None else failure.traceback or failure.last_lines
    if failure is not None and said:
        yield _text_block(f"Rank {failure.rank} failed first, at step {failure.step}", said)


def _text_block(title: str, text: str) -> Html:
    lines = [short_line(line) for line in text.rstrip().split("\n")]
    left_out = len(lines) - _LINES
    if left_out > 0:
        lines = [*lines[: _LINES // 2], f"… {left_out} lines …", *lines[-_LINES // 2 :]]
    block = element("pre", element("code", "\n".join(lines)))
    return element("div", element("h3", title), scrolled(title, block))


def _log_excerpt(tail: str, explanation: Explanation) -> Html | str:
    """Show the error in the end of a log, with what came before and after it; else the last lines."""
    lines = [line for line in map(parse_line, lines_of(tail)) if line is not None]
    if not lines:
        return ""
    found = _error_in(lines, explanation)
    if found is None:
        return _block(lines[-_TAIL:], None, "The end of the log")
    at = next(number for number, line in enumerate(lines) if line is found)
    start = max(0, at - BEFORE)
    return _block(lines[start : at + AFTER], at - start, "The error in the log")


def machine_lines(head: str) -> list[str]:
    """Return what the machine said of itself before the training: its GPUs, drivers, disk and network."""
    lines = [line for line in map(parse_line, lines_of(head)) if line is not None]
    told = [line.text for line in lines if line.source in ("10-check-gpu", "20-check-comm")]
    return [short_line(text) for text in told[:_TAIL]]


def short_line(text: str) -> str:
    """Return a line as a page shows it."""
    text = shown(text)
    return text if len(text) <= _CHARACTERS else text[: _CHARACTERS - 1] + "…"


def _error_in(lines: Sequence[LogLine], explanation: Explanation) -> LogLine | None:
    """The line to mark: the last one of the traceback, where it says what was raised, else the first."""
    outcome = explanation.outcome
    if outcome is not None and outcome.hang is not None:
        # A hang raises nothing; what the ranks print when they are ended is no error of theirs.
        said = (line for line in lines if line.source == "supervisor" and outcome.detail in line.text)
        return next(said, None)
    failed = next((end.step for end in explanation.steps if end.exit_code), "")
    rank = None if outcome is None or outcome.first_failure is None else outcome.first_failure.rank
    sources = [f"rank{rank}"] if rank is not None else []
    for source in (*sources, *([failed] if failed else []), ""):
        if error := first_error(lines, source):
            return _raised(error)
    return None


def _raised(error: Sequence[LogLine]) -> LogLine:
    """What a traceback ends with: the first line after one that is indented, and is not itself."""
    if not error[0].text.startswith("Traceback"):
        return error[0]
    pairs = pairwise(error)
    return next((after for line, after in pairs if line.text[:1] == " " and after.text[:1] != " "), error[0])


def _block(lines: Sequence[LogLine], marked: int | None, title: str) -> Html:
    start = lines[0].at
    rows = [_row(line, start, is_marked=number == marked) for number, line in enumerate(lines)]
    block = element("table", element("tbody", *rows), class_="log")
    return element("div", element("h3", title), scrolled(title, block))


def _row(line: LogLine, start: float, *, is_marked: bool) -> Html:
    words = element("mark", short_line(line.text)) if is_marked else short_line(line.text)
    return element(
        "tr",
        element("td", f"+{line.at - start:.1f}s", class_="num faint"),
        element("td", line.source, class_="faint"),
        element("td", element("code", words)),
        class_="marked" if is_marked else None,
    )
