"""Results of a batch from what its runs left: diverged points, and points whose programs did the same."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.jobs import train_job
from tests.launcher.decisions.outcomes import GOOD
from tests.runs import ended_run
from vastrun.contract import layout
from vastrun.launcher.batch.results import PointResult, results_of, same_results
from vastrun.launcher.batch.schedule import PointState
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Cause, Phase
from vastrun.launcher.core.batch import Batch, BatchObjective, BatchPoint, BatchSpec, Goal
from vastrun.launcher.outputs.folder import place_of
from vastrun.launcher.ui.document import to_text
from vastrun.launcher.ui.render.batch import Results, ended_text
from vastrun.launcher.ui.render.batch_results import results_csv, results_text
from vastrun.launcher.ui.render.why import BatchExplanation, batch_why_text

JOB = dump_job(train_job())


class Sweep:
    """Points that have ended, with what their programs reported."""

    def __init__(self, folder: Path, metric: str = "loss", goal: Goal = "min") -> None:
        self.folder, self.states = folder, list[PointState]()
        self.spec = BatchSpec(name="s", job="j.yaml", objective=BatchObjective(metric=metric, goal=goal))
        self.batch = Batch(
            name="s", spec=self.spec, provider="local", folder=str(folder), created_at=0.0, opened_at=0.0
        )

    def add(self, values: Mapping[str, Any], *metrics: str, **run: Any) -> None:
        """Add a point; `metrics`: the fields of each line, as JSON without its braces."""
        number = len(self.states) + 1
        out = self.folder / str(number)
        out.mkdir()
        lines = [f'{{"step": {step}, {each}}}\n' for step, each in enumerate(metrics, 1)]
        (out / "metrics.jsonl").write_text("".join(lines))
        made = ended_run(id=f"run-{number}", out_dir=str(out), **run)
        point = BatchPoint(id=f"p{number}", values=values, spec_json=JOB, number=number)
        self.states.append(PointState(point=point, runs=(made,)))

    def leave_scores(self, scores: Mapping[str, float]) -> None:
        """Leave these scores as the outcome of the newest point."""
        file = place_of(self.folder / str(len(self.states)), layout.OUTCOME)
        file.parent.mkdir()
        file.write_text(replace(GOOD, scores=dict(scores)).to_json())

    def curves(self, name: str, *curves: Sequence[float]) -> None:
        for curve in curves:
            self.add({"amp": len(self.states)}, *(f'"{name}": {json.dumps(value)}' for value in curve))

    @property
    def rows(self) -> list[PointResult]:
        return results_of(self.states, self.spec.objective, 1e9)

    @property
    def order(self) -> list[int]:
        return [row.point.number for row in self.rows]

    def same(self) -> list[tuple[Sequence[int], Sequence[str]]]:
        return [(one.points, one.keys) for one in same_results(self.rows, self.spec.objective)]

    def text(self) -> str:
        return results_text(self.rows, self.spec, None, same_results(self.rows, self.spec.objective))


@pytest.mark.parametrize("goal", ["min", "max"])
@pytest.mark.parametrize("end", ["NaN", "-Infinity", "null", "1e999", "1e31", '"\\u001b[31m<b>"', "[1]"])
def test_a_point_that_ends_in_no_number_is_last_regardless(goal: Goal, end: str, tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, goal=goal)
    best = -99 if goal == "min" else 99
    sweep.add({"lr": 9}, f'"loss": {best}', f'"loss": {end}')
    sweep.add({"lr": 1}, '"loss": 3')
    sweep.add({"lr": 2})
    assert sweep.order == [2, 3, 1]
    assert [(row.metric, row.diverged) for row in sweep.rows] == [(3.0, False), (None, False), (None, True)]


def test_a_point_whose_metric_is_a_number_again_has_not_diverged(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    sweep.add({"lr": 1}, '"loss": 3', '"loss": NaN', '"loss": 2', '"other": NaN')
    assert [(row.metric, row.diverged) for row in sweep.rows] == [(2.0, False)]


def test_a_run_that_its_trainer_ended_as_diverged_is_so_whatever_it_reported(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    sweep.add({"lr": 9}, '"loss": 1', cause=Cause.DIVERGED)
    sweep.add({"lr": 1}, '"loss": 2')
    assert sweep.order == [2, 1] and sweep.rows[1].diverged


@pytest.mark.parametrize(
    ("scores", "metric", "diverged"),
    [
        ({"rollout_diverged": 2.0}, None, True),
        ({"rollout_diverged": 0.0}, None, False),
        ({"rollout_diverged": 2.0, "rollout_nrmse": 0.5}, 0.5, False),
        ({}, None, False),
    ],
)
def test_a_score_that_is_missing_because_rollouts_diverged_is_diverged(
    scores: Mapping[str, float], metric: float | None, diverged: bool, tmp_path: Path
) -> None:
    sweep = Sweep(tmp_path, "scores.rollout_nrmse")
    sweep.add({"lr": 9})
    sweep.leave_scores(scores)
    assert [(row.metric, row.diverged) for row in sweep.rows] == [(metric, diverged)]


def test_a_diverged_point_is_named_wherever_it_is_shown(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    sweep.curves("loss", [5.0, float("nan")], [3.0, 2.0])
    lines = sweep.text().splitlines()
    assert lines[2].split()[:4] == ["1", "amp=0", "SUCCEEDED", "diverged"]
    assert "best     amp=1: loss 2" in lines
    document = json.loads(to_text(Results.of(sweep.rows, sweep.batch, [])))
    assert [point["diverged"] for point in document["points"]] == [False, True]
    header, *cells = results_csv(sweep.rows, sweep.spec)
    at = header.index("diverged")
    assert [(row[at - 1], row[at]) for row in cells] == [("2.0", ""), ("", "true")]
    assert "diverged  #1: loss ends in no finite number" in batch_why_text(
        sweep.batch, sweep.states, sweep.rows
    )
    assert BatchExplanation.of(sweep.batch, sweep.states, sweep.rows).diverged == [1]
    assert ended_text(sweep.states[0], "loss", float("nan")) == "1 SUCCEEDED loss diverged: amp=0"


def test_where_every_point_diverged_none_is_best(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    sweep.curves("loss", [5.0, float("nan")], [3.0, float("inf")])
    assert "best" not in sweep.text()
    assert "metric  every point that reported loss diverged" in sweep.text()


def test_points_with_the_same_last_digit_are_named_once_with_the_cause(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    for lr, curve in (
        (1, ('"loss": 3, "s": {}', '"loss": 2.25')),
        (2, ('"loss": 3, "s": {}', '"loss": 2.5')),
    ):
        for amp in ("True", "False"):
            sweep.add({"lr": lr, "amp": amp}, *(line.replace("{}", amp.lower()) for line in curve))
    assert sweep.same() == [([1, 2], ["amp"]), ([3, 4], ["amp"])]
    (line,) = [line for line in sweep.text().splitlines() if line.startswith("same")]
    assert line.split(maxsplit=1)[1] == (
        "points 1 and 2 (amp=True, amp=False), 3 and 4 reported the same to the last digit: "
        "does the program read amp?"
    )
    same = same_results(sweep.rows, sweep.spec.objective)
    document = json.loads(to_text(Results.of(sweep.rows, sweep.batch, same)))
    assert [one["points"] for one in document["same"]] == [[1, 2], [3, 4]]


def test_many_points_with_the_same_results_are_named_shortly(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    for seed in range(6):
        sweep.add({"seed": seed, "lr": 1}, '"loss": 3', '"loss": 2')
    assert "points 1 and 2 and 3 and 4 and … (seed=0, seed=1, seed=2, seed=3, …) reported" in sweep.text()


@pytest.mark.parametrize(
    ("metric", "one", "other"),
    [
        ("loss", ['"loss": 0.0'], ['"loss": 0.0']),
        ("accuracy", ['"accuracy": 1.0'] * 9, ['"accuracy": 1.0'] * 9),
        ("loss", ['"loss": 3', '"loss": 2.0000000000000004'], ['"loss": 3', '"loss": 2']),
        ("loss", ['"loss": 3', '"loss": 2'], ['"loss": 3', '"loss": 2', '"loss": 2']),
        ("loss", ['"loss": 3', '"loss": 2'], ['"loss": 3.5', '"loss": 2']),
        ("loss", ['"loss": 3', '"loss": NaN'], ['"loss": 3', '"loss": NaN']),
        (
            "accuracy",
            ['"accuracy": 0.5, "loss": 3', '"accuracy": 1, "loss": 2'],
            ['"accuracy": 0.5, "loss": 4', '"accuracy": 1, "loss": 2'],
        ),
        ("other", ['"loss": 3', '"loss": 2'], ['"loss": 3', '"loss": 2']),
    ],
)
def test_points_do_not_match_by_chance(metric: str, one: list[str], other: list[str], tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, metric)
    sweep.add({"amp": True}, *one)
    sweep.add({"amp": False}, *other)
    assert sweep.same() == []
    assert "reported the same" not in sweep.text()


@pytest.mark.parametrize(("score", "same"), [(0.25, [([1, 2], ["amp"])]), (0.5, [])])
def test_a_score_compares_the_curves_of_loss_and_score(score: float, same: object, tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, "scores.error")
    for number, each in enumerate((0.25, score, 0.5)):
        sweep.add({"amp": number}, *(['"loss": 3', '"loss": 2'] if number < 2 else ['"loss": 1']))
        sweep.leave_scores({"error": each})
    assert sweep.same() == same


def test_points_that_still_run_are_not_compared(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    sweep.curves("loss", [3.0, 2.0], [3.0, 2.0])
    assert sweep.same() == [([1, 2], ["amp"])]
    state = sweep.states[1]
    sweep.states[1] = replace(state, runs=(replace(state.runs[0], phase=Phase.TRAIN),))
    assert sweep.same() == []
