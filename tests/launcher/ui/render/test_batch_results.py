"""Tables of results: in 80 columns, the values in which rows differ; in a spreadsheet, no formulas."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import pytest

from tests.jobs import train_job
from tests.launcher.cost.spent import BEGAN, run
from tests.offers import rtx_4090
from tests.runs import a_run
from vastrun.launcher.batch.results import PointResult, results_of
from vastrun.launcher.batch.schedule import PointState
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import ExtraRates, Meter, Phase, Run
from vastrun.launcher.core.batch import BatchLimits, BatchObjective, BatchPoint, BatchSpec
from vastrun.launcher.ui.render.amounts import csv_cell, table
from vastrun.launcher.ui.render.batch_results import (
    common_values,
    fitted,
    results_csv,
    results_text,
    value_forms,
)

FOLDER = "/data/pdebench/2D/shallow-water/"
POINTS = [
    {"width": 64, "data": f"{FOLDER}{name}.h5", "train.optim.lr": lr}
    for name in ("train", "valid")
    for lr in (1e-3, 1e-4)
]


def shown(width: int | None, points: Sequence[dict[str, object]] = POINTS) -> list[str]:
    def render(texts: Sequence[str], width: int | None) -> str:
        return table(("#", "VALUES"), [("1", text) for text in texts], cut=(1,), width=width)

    return [line[3:] for line in fitted(value_forms(points, points), width, render).splitlines()[1:]]


def test_all_values_are_shown_where_there_is_room() -> None:
    assert shown(None)[0] == shown(200)[0] == f"width=64 data={FOLDER}train.h5 lr=0.001"


def test_with_less_room_the_values_that_all_points_have_are_left_out() -> None:
    assert shown(60) == [
        f"data={FOLDER}{name}.h5 lr={lr}" for name in ("train", "valid") for lr in ("0.001", "0.0001")
    ]
    assert common_values(POINTS) == {"width": 64}


def test_with_little_room_the_names_are_left_out() -> None:
    assert shown(54) == [
        f"{FOLDER}{name}.h5, {lr}" for name in ("train", "valid") for lr in ("0.001", "0.0001")
    ]


def test_where_nothing_fits_the_ends_are_shown_in_which_the_points_differ() -> None:
    assert shown(22) == [
        "…er/train.h5, 0.001",
        "…r/train.h5, 0.0001",
        "…er/valid.h5, 0.001",
        "…r/valid.h5, 0.0001",
    ]


@pytest.mark.parametrize("width", [11, 15, 18])
def test_no_table_is_wider_than_asked_for(width: int) -> None:
    assert all(len(line) + 3 <= width for line in shown(width))


def test_of_points_that_do_not_differ_all_values_are_shown() -> None:
    assert value_forms([{"lr": 1}], [{"lr": 1}])[1] == ["lr=1"]
    assert value_forms([{"lr": 1}] * 2, [{"lr": 1}] * 2)[1] == ["lr=1", "lr=1"]
    assert common_values([]) == {}


def test_values_of_another_type_or_a_key_that_some_lack_are_a_difference() -> None:
    points = [{"a": 1, "b": 2}, {"a": True, "b": 2}, {"a": 1}]
    assert common_values(points) == {}
    assert value_forms(points, points)[1] == ["a=1 b=2", "a=true b=2", "a=1"]


def row(name: str, run: Run | None = None) -> PointResult:
    state = PointState(
        point=BatchPoint(id=name, values={"data": FOLDER + name}, spec_json=dump_job(train_job())),
        runs=() if run is None else (run,),
    )
    objective = BatchObjective(metric="loss", goal="min")
    return replace(results_of([state], objective, BEGAN + 1e6)[0], metric=0.125)


@pytest.mark.parametrize("metric", ["time", "scores.cost", "steps", "run", "values", "verdict", "#"])
@pytest.mark.parametrize("width", [None, 60])
def test_a_metric_that_is_called_like_a_column_has_its_own_column(metric: str, width: int | None) -> None:
    spec = BatchSpec(name="widths", job="job.yaml", objective=BatchObjective(metric=metric, goal="min"))
    rows = [row(name) for name in ("train", "valid")]
    header, *lines = results_text(rows, spec, width).splitlines()
    assert header.split() == ["#", "VALUES", "VERDICT", metric, "STEPS", "TIME", "COST", "RUN"]
    assert [line.split()[3] for line in lines[:2]] == ["0.125"] * 2


def test_cells_that_would_look_alike_once_cut_show_where_they_differ() -> None:
    jobs = [f"a-long-experiment-name-{n}" for n in (1, 22)] + ["another-long-experiment"]
    text = table(("RUN", "JOB"), [("x", job) for job in jobs], cut=(1,), width=20)
    cut = [line[5:] for line in text.splitlines()[1:]]
    assert cut == ["…eriment-name-1", "…riment-name-22", "another-long-e…"]


def test_cells_that_are_the_same_are_cut_at_their_end() -> None:
    text = table(("RUN", "JOB"), [("x", "a-long-experiment-name")] * 2, cut=(1,), width=20)
    assert text.splitlines()[1] == "x    a-long-experim…"


def short_points(reuse: Literal["auto", "never"], life_s: float = 120.0) -> str:
    """The results of four points, each on a machine of its own for so long."""
    extras = ExtraRates(storage_usd_per_hour=0.36)
    offer = rtx_4090(usd_per_hour=3.6, bill_tail_s=300.0)
    rows = [
        row(
            f"p{number}",
            run=run(f"r{number}", hours=life_s / 3600, offer=offer, meter=Meter(extras=extras), boot_s=60.0),
        )
        for number in range(4)
    ]
    limits = BatchLimits(parallel=2)
    return results_text(rows, BatchSpec(name="widths", job="job.yaml", limits=limits, reuse=reuse), None)


def test_short_points_on_machines_of_their_own_show_what_reuse_would_have_saved() -> None:
    # Two fewer would have been rented: 60 s of its disk each, and 20 s and the tail of 300 s of all of it.
    saved_usd = 2 * (60 * 0.0001 + 320 * 0.001)
    text = " ".join(short_points("never").split())
    assert (
        f"4 machines lived for less than 10 min each; reuse: auto saves up to ${saved_usd:.3f} of starts"
        in text
    )
    assert "reuse: auto saves" not in short_points("auto")
    assert "reuse: auto saves" not in short_points("never", life_s=660.0)


FORMULA = '=HYPERLINK("http://x")'


@pytest.mark.parametrize(
    "text", [FORMULA, "+1+1", "-1-1", "@SUM(A1)", " =1", "\t=1", "\r=1", "-", "\uff1d1", "--1"]
)
def test_what_would_be_a_formula_is_quoted(text: str) -> None:
    assert csv_cell(text).startswith("'")


@pytest.mark.parametrize("text", ["", "RTX 4090", "-1", "-1e-05", "+3", "-inf", "a=b", "2026-11-27"])
def test_anything_else_stays_as_it_is(text: str) -> None:
    assert csv_cell(text) == text


def test_values_metrics_and_hosts_of_a_batch_are_no_formulas() -> None:
    values = {"=cell": FORMULA, "lr": -0.5}
    run = a_run(spec_json="", provider="vast", phase=Phase.TRAIN, out_dir="", host="@SUM(A1)")
    point = BatchPoint(id="1f", values=values, spec_json="", number=1)
    row = PointResult(
        point=point, run=run, verdict=None, metric=-0.25, step=0, hours=0.0, usd=0.0, attempts=1
    )
    spec = BatchSpec(name="b", job="job.yaml", objective=BatchObjective(metric="+loss"))
    header, cells = results_csv([row], spec)
    assert dict(zip(header, cells, strict=True)) | {"run": ""} == {
        "point": "1",
        "id": "1f",
        "'=cell": f"'{FORMULA}",
        "lr": "-0.5",
        "verdict": cells[4],
        "'+loss": "-0.25",
        "diverged": "",
        "step": "0",
        "hours": "0.0000",
        "usd": "0.0000",
        "run": "",
        "host": "'@SUM(A1)",
    }


def test_a_cell_ends_no_line_and_steers_nothing() -> None:
    assert csv_cell("RTX\n4090\x1b[31m") == "RTX 4090"
