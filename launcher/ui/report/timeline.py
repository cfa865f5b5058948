"""The timeline of a run: a bar for each phase, with its duration and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vastrun.launcher.commands.report import PhaseSpan
from vastrun.launcher.core import Phase, StepEnd
from vastrun.launcher.ui.render.amounts import duration, how_many, usd_parts
from vastrun.launcher.ui.report.markup import Html, element
from vastrun.launcher.ui.report.page import folded, scrolled

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


def timeline(spans: Sequence[PhaseSpan], steps: Sequence[StepEnd]) -> Html | str:
    """Draw the phases on a common time axis, and the steps on the machine folded below."""
    if not spans:
        return ""
    dollars = usd_parts([span.usd for span in spans])
    start, whole_s = spans[0].start, max(spans[-1].end - spans[0].start, 1e-9)
    rows = [
        element(
            "tr",
            element("th", span.phase.value, element("small", WORDS[span.phase]), scope="row"),
            element("td", _bar(span, start, whole_s), class_="bar"),
            element("td", duration(span.seconds), class_="num"),
            element("td", f"{span.seconds / whole_s:.0%}", class_="num faint"),
            element("td", f"${spent:.3f}", class_="num"),
        )
        for span, spent in zip(spans, dollars, strict=True)
    ]
    header = element(
        "tr",
        element("th", "Phase", scope="col"),
        element("th", element("span", "From start to end", class_="hidden"), scope="col"),
        element("th", "Time", scope="col", class_="num"),
        element("th", "Share", scope="col", class_="num"),
        element("th", "Cost", scope="col", class_="num"),
    )
    table = element("table", element("thead", header), element("tbody", *rows), class_="timeline")
    return element("div", scrolled("Timeline", table), _steps(steps))


def _bar(span: PhaseSpan, start: float, whole_s: float) -> Html:
    width = max(_MIN_BAR, _WIDTH * span.seconds / whole_s)
    x = min(_WIDTH * (span.start - start) / whole_s, _WIDTH - width)
    return element(
        "svg",
        element("rect", x=0, y=7, width=_WIDTH, height=2, class_="rail"),
        element(
            "rect", x=f"{x:.1f}", y=0, width=f"{width:.1f}", height=16, rx=2, class_=f"span {span.phase}"
        ),
        viewBox=f"0 0 {_WIDTH} 16",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def _steps(ends: Sequence[StepEnd]) -> Html | str:
    """Write the duration and exit code of each step on the machine."""
    if not ends:
        return ""
    rows = [
        element(
            "tr",
            element("th", end.step, scope="row"),
            element("td", duration(end.seconds), class_="num"),
            element("td", "ok" if not end.exit_code else f"exit code {end.exit_code}"),
            element("td", end.last_line if end.exit_code else "", class_="faint"),
        )
        for end in ends
    ]
    names = ("Step", "Time", "End", "Last line")
    header = element("tr", *(element("th", name, scope="col") for name in names))
    table = element("table", element("thead", header), element("tbody", *rows))
    return folded(f"{how_many(len(ends), 'step')} on the machine", scrolled("Steps on the machine", table))
