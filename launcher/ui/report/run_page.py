"""The page of one run: verdict and cause, time and cost, curves and scores, machine and job."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vastrun.contract.texts import how_many
from vastrun.launcher.commands.report import RunReport, report_of
from vastrun.launcher.config import program_of
from vastrun.launcher.core import Phase, Run
from vastrun.launcher.core.bills import gpu_seconds
from vastrun.launcher.decisions.comparison import chosen_values, job_values
from vastrun.launcher.ports import Ledger
from vastrun.launcher.ui.render.amounts import duration, moment, usd
from vastrun.launcher.ui.render.loglines import machine_lines
from vastrun.launcher.ui.render.runs import progress_of
from vastrun.launcher.ui.render.verdict import (
    cause_line,
    code_text,
    cost_text,
    on_machines,
    silence_text,
    stage_result,
    state_of,
)
from vastrun.launcher.ui.report.charts import charts
from vastrun.launcher.ui.report.page import (
    Content,
    Frame,
    Html,
    badge,
    element,
    facts,
    figures,
    folded,
    image,
    joined,
    note,
    page,
    page_bytes,
    scrolled,
    section,
    shortened,
    table,
)
from vastrun.launcher.ui.report.run_sections import failure, newest_lines, short_line, timeline

MAX_BYTES = 400_000
"""Maximum size of the page; pictures that do not fit are left out."""
_SPARE_BYTES = 10_000
"""Bytes for the scores, the captions of pictures, and the head of the page."""
_MAX_SCORES, _MAX_EVENTS, _MAX_PROOFS, _MAX_ATTEMPTS = 40, 100, 40, 40
_MARKS = {
    True: ("yes", "✓", "holds"),
    False: ("no", "✗", "does not hold"),
    None: ("missing", "?", "is missing"),
}
"""CSS class, sign and words for whether a proof holds."""


def page_of(ledger: Ledger, run: Run, now: float) -> str:
    """Write the page of a run from the ledger and its outputs."""
    return run_page(report_of(ledger, run, now))


def run_page(
    report: RunReport, frame: Frame | None = None, address_of: Callable[[Run], str] | None = None
) -> str:
    """Write the page. `frame`: frame of a page on the web server; `address_of`: pages of other runs there."""
    run = report.run
    before = [
        _header(report),
        section("Error", failure(report), name="error"),
        section("Log", newest_lines(report), name="log"),
        section("Proofs", _proofs(run), name="proofs"),
        section(
            "Time and dollars",
            timeline(report.spans, report.explanation.steps),
            _stages(report),
            _attempts(report, address_of),
            name="time",
        ),
        section("Curves", charts(report.series), name="curves"),
    ]
    chosen, every = chosen_values(report.spec), job_values(report.spec)
    all_options = folded(f"All {len(every)} options", _values("All options", every))
    after = [
        section("Machine", _machine(report), name="machine"),
        section("Job", _values("Job", chosen), all_options, name="job"),
        section("Diary", _diary(report), name="diary"),
    ]
    room = MAX_BYTES - page_bytes(*before, *after) - _SPARE_BYTES
    evaluation = section("Evaluation", _scores(report), _pictures(report, room), name="evaluation")
    return page(f"{run.job} · {run.id}", *before, evaluation, *after, made_at=report.made_at, frame=frame)


def _header(report: RunReport) -> Html:
    run, row = report.run, report.row
    cause = shortened(cause_line(run))
    scores = program_of(report.spec).score_lines(report.explanation.scores)
    is_done = run.cause is None and run.phase is Phase.ENDED
    return element(
        "header",
        element("p", "vastrun", element("span", run.id, class_="id"), class_="brand"),
        element("h1", shortened(run.job), " ", badge(row.verdict, state_of(row))),
        element("p", cause, class_="cause") if cause else "",
        *(element("p", shortened(line), class_="score") for line in scores[:3]),
        figures(
            [
                ("cost", f"{cost_text(row)}{on_machines(row)}"),
                ("time", duration((run.ended_at or report.made_at) - run.created_at)),
                ("steps", progress_of(run)),
                ("machine", _gpus(run)),
                ("price", f"{usd(row.usd_per_hour)}/h" if run.rented_at else ""),
            ]
        ),
        "" if is_done else element("p", element("b", "Next: "), report.explanation.advice, class_="next"),
    )


def _gpus(run: Run) -> str:
    offer = run.offer
    if offer is None:
        return ""
    return f"{offer.gpus} x {offer.gpu_name}" if offer.gpus and offer.gpu_name else "CPU"


def _proofs(run: Run) -> Html | str:
    """List the proofs, and whether each holds."""
    if not run.proofs:
        over = run.phase is Phase.ENDED
        return note(f"None{': the run left no evidence' if over else ' yet'}.")
    rows = []
    for proof in run.proofs[:_MAX_PROOFS]:
        name, sign, words = _MARKS[proof.holds]
        mark = element("span", sign, element("span", f" {words}", class_="hidden"), class_=f"mark {name}")
        text = element("span", element("b", shortened(proof.name)), " ", shortened(proof.text))
        rows.append(element("li", mark, text))
    return element("ul", *rows, class_="proofs")


def _attempts(report: RunReport, address_of: Callable[[Run], str] | None) -> Html | str:
    if len(report.attempts) < 2:
        return ""
    rows = [
        (
            element("a", attempt.run.id, href=address_of(attempt.run))
            if address_of and attempt.run.id != report.run.id
            else attempt.run.id,
            badge(attempt.verdict, state_of(attempt)),
            shortened(cause_line(attempt.run)),
            usd(attempt.usd),
        )
        for attempt in report.attempts[-_MAX_ATTEMPTS:]
    ]
    columns, classes = ("Attempt", "Verdict", "Cause", "Cost"), (None, "", "", "num")
    return element("div", element("h3", "Attempts"), table("Attempts", columns, rows, classes=classes))


def _stages(report: RunReport) -> Html | str:
    stages = report.explanation.stages
    if not stages:
        return ""
    rows = [
        (
            shortened(stage.name),
            f"{stage.steps_done} of {stage.steps_planned}",
            duration(stage.seconds),
            usd(stage.usd),
            shortened(stage_result(stage, report.run)),
        )
        for stage in stages
    ]
    columns, classes = ("Stage", "Steps", "Time", "Cost", "Result"), (None, "num", "num", "num", "")
    return element("div", element("h3", "Stages"), table("Stages", columns, rows, classes=classes))


def _scores(report: RunReport) -> Html | str:
    scores = report.explanation.scores
    if not scores:
        return ""
    shown = [(shortened(name), f"{value:.4g}") for name, value in sorted(scores.items())[:_MAX_SCORES]]
    return folded(how_many(len(scores), "score"), figures(shown, "scores"))


def _pictures(report: RunReport, room: int) -> Html | str:
    """Write the pictures that fit. `room`: bytes left on the page."""
    shown: list[Html] = []
    left_out = []
    for name, picture in report.pictures.items():
        words = name.rsplit(".", 1)[0].replace("-", " ")
        figure = element("figure", image(picture, words), element("figcaption", words))
        if len(figure) > room:
            left_out.append(name)
        else:
            room -= len(figure)
            shown.append(figure)
    text = f"Too large for this page: {', '.join(left_out)}, in {report.run.out_dir}/report"
    return joined(element("div", *shown, class_="pictures") if shown else "", note(text) if left_out else "")


def _machine(report: RunReport) -> Html:
    run, offer = report.run, report.run.offer
    lines = list(map(short_line, machine_lines(report.log_head)))
    rented = run.rented_at is not None
    cost = report.row.cost
    cost_text = f"{usd(cost.gpu_usd)} GPUs, {usd(cost.storage_usd)} storage, {usd(cost.traffic_usd)} traffic"
    pairs: list[tuple[str, Content]] = [
        ("provider", run.provider),
        ("machine", "" if offer is None else shortened(offer.description)),
        ("host", shortened(run.host)),
        ("instance", run.instance_id or ""),
        ("image", element("code", shortened(run.image)) if run.image else ""),
        ("code", shortened(code_text(report.explanation.code))),
        ("rented", moment(run.rented_at) if run.rented_at is not None else ""),
        ("state", silence_text(report.row)),
        (
            "GPU time",
            duration(gpu_seconds(run, report.made_at)) if rented and (offer is None or offer.gpus) else "",
        ),
        ("cost", cost_text if rented else ""),
    ]
    if not lines:
        return facts(pairs)
    checks = element("ul", *(element("li", line) for line in lines), class_="said")
    return joined(facts(pairs), element("h3", "Checks before the training"), checks)


def _values(title: str, values: Mapping[str, object]) -> Html:
    """Write options in the form of `--set`."""
    lines = "\n".join(f"{key}: {shortened(str(value))}" for key, value in values.items())
    return scrolled(title, element("pre", element("code", lines)))


def _diary(report: RunReport) -> Html | str:
    if not report.events:
        return ""
    rows = [
        (moment(event.at), event.phase.value, shortened(event.text), usd(event.usd))
        for event in report.events[-_MAX_EVENTS:]
    ]
    columns, classes = ("When", "Phase", "What", "Spent"), ("faint num", "", "", "num")
    return folded(how_many(len(report.events), "event"), table("Diary", columns, rows, classes=classes))
