"""Rows of tables in 80 columns: the values in which they differ are shown."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from vastrun.launcher.batch.results import PointResult
from vastrun.launcher.core.batch import BatchObjective, BatchPoint, BatchSpec
from vastrun.launcher.ui.render.batch_results import (
    common_values,
    fitted,
    results_text,
    value_forms,
    values_column,
)
from vastrun.launcher.ui.render.table import table

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
    assert values_column([{"lr": 1}], [{"lr": 1}]) == ["lr=1"]
    assert values_column([{"lr": 1}] * 2, [{"lr": 1}] * 2) == ["lr=1", "lr=1"]
    assert common_values([]) == {}


def test_values_of_another_type_or_a_key_that_some_lack_are_a_difference() -> None:
    points = [{"a": 1, "b": 2}, {"a": True, "b": 2}, {"a": 1}]
    assert common_values(points) == {}
    assert values_column(points, points) == ["a=1 b=2", "a=True b=2", "a=1"]


@pytest.mark.parametrize("metric", ["time", "scores.cost", "steps", "run", "values", "verdict", "#"])
@pytest.mark.parametrize("width", [None, 60])
def test_a_metric_that_is_called_like_a_column_has_a_column_of_its_own(
    metric: str, width: int | None
) -> None:
    spec = BatchSpec(name="widths", job="job.yaml", objective=BatchObjective(metric=metric, goal="min"))
    rows = [
        PointResult(
            point=BatchPoint(id=name, values={"data": FOLDER + name}, spec_json="{}"),
            run=None,
            verdict=None,
            metric=0.125,
            step=0,
            hours=0.0,
            usd=0.0,
            attempts=0,
        )
        for name in ("train", "valid")
    ]
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
