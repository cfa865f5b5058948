"""Sweeps and searches as a user types them, on a fake market: points that are drawn, compared and pruned."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakebox import Training
from tests.launcher.desk import FILE, Desk
from tests.launcher.terminal import JOB
from vastrun.contract.outcome import Check

OWN = """\
name: own
resources: {gpus: 2}
limits: {hours: 1, usd: 3}
command: python -c 'print({lr})'
success: {steps: 10}
"""
DONE = Check(name="steps", holds=True, text="every rank reached step 10 of 10")


def test_a_sweep_is_a_batch_in_one_line(desk: Desk) -> None:
    words = (
        "sweep",
        str(desk.job),
        "train.seed=1,2",
        "train.noise=0.1..0.2",
        "--samples",
        "2",
        "--usd",
        "9",
        "-y",
    )
    result = desk.type(*words, "--out", str(desk.folder / "out"))
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("SUCCEEDED") == 4
    # Not after the file: that of most programs is job.yaml.
    assert "batch demo-sweep: 4 of 4 points are new" in result.stderr
    listed = [line.split() for line in desk.type("batch", "results", "last").stdout.splitlines()[1:5]]
    assert sorted(line[1] for line in listed) == ["seed=1", "seed=1", "seed=2", "seed=2"]
    assert len({tuple(line[1:3]) for line in listed}) == 4
    wrong = desk.type("sweep", str(desk.job), "train.sed=1,2", "--usd", "9", "-y")
    assert wrong.exit_code == 2 and "--set train.sed: unknown key; did you mean seed?" in wrong.stderr


def test_values_that_all_points_of_a_sweep_have_are_set_as_for_a_launch(desk: Desk) -> None:
    words = ("sweep", str(desk.job), "train.seed=1,2", "--usd", "9", "-y", "--out", str(desk.folder / "out"))
    result = desk.type(*words, "--set", "train.batch=16", "--set", "name=short")
    assert result.exit_code == 0, result.stderr
    assert "batch short-sweep: 2 of 2 points are new" in result.stderr
    jobs = [json.loads(run.spec_json) for run in desk.ledger.runs()]
    assert sorted((job["train"]["batch"], job["train"]["seed"]) for job in jobs) == [(16, 1), (16, 2)]
    wrong = desk.type(*words, "--set", "train.stepps=7", "--set", "nothing")
    assert wrong.exit_code == 2
    assert "--set train.stepps: unknown key; did you mean steps?" in wrong.stderr
    assert "--set nothing: expected key=value" in wrong.stderr


def test_only_a_point_that_has_checkpoints_is_offered_to_be_continued(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "trainer")
    words = ("--usd", "9", "-y", "--out")
    trained = desk.type("sweep", str(desk.job), "train.seed=1,2", *words, str(desk.folder / "out"))
    assert "continue  vastrun launch --from" in trained.stdout
    own = Desk(tmp_path / "own", Training(outcome=lambda told: replace(told, checks=(DONE,))))
    own.job.write_text(OWN)
    swept = own.type("sweep", str(own.job), "lr=1,2", *words, str(own.folder / "out"))
    assert "best " in swept.stdout, swept.stdout + swept.stderr
    assert "continue" not in swept.stdout


def test_a_sweep_whose_metric_no_run_reports_says_so(desk: Desk) -> None:
    words = ("--metric", "accuracy", "--usd", "9", "-y", "--out", str(desk.folder / "out"))
    swept = desk.type("sweep", str(desk.job), "train.seed=1,2", *words)
    assert "metric  no run reported accuracy: call beat(step, accuracy=...) in the program" in swept.stdout


@pytest.mark.slow
def test_points_that_fall_behind_are_pruned_and_are_no_failure(tmp_path: Path) -> None:
    losses = (1.0, 8.0, 2.0, 9.0, 3.0, 7.0)
    desk = Desk(tmp_path, *(Training(seconds=400.0, steps=40, loss=loss) for loss in losses))
    desk.job.write_text(JOB.replace("steps: 10", "steps: 40"))
    desk.file.write_text(FILE + "early_stop: {min_steps: 8, factor: 2}\n")
    code, out, err = desk.submit()
    assert code == 0, err
    points = {p["number"]: p for p in desk.document("batch", "results", "widths")["points"]}
    pruned = {number for number, point in points.items() if point["verdict"] == "PRUNED"}
    assert pruned >= {2, 4, 6} and points[1]["verdict"] == "SUCCEEDED"
    assert all(points[number]["step"] < 40 for number in pruned)
    assert "is not among the best half" in err
    assert f"{len(pruned)} pruned" in desk.type("batch", "status", "widths").stdout
    assert out.splitlines()[1].split()[0] == "1"
    assert "is not among the best half" in desk.type("why", points[4]["run"]).stdout


@pytest.mark.slow
def test_without_early_stop_all_of_them_finish(tmp_path: Path) -> None:
    desk = Desk(tmp_path, *(Training(seconds=100.0, steps=40, loss=loss) for loss in (1.0, 8.0, 9.0)))
    desk.job.write_text(JOB.replace("steps: 10", "steps: 40"))
    desk.file.write_text(FILE + "early_stop: {min_steps: 8, factor: 2}\n")
    assert desk.submit("--no-early-stop")[0] == 0
    results = desk.document("batch", "results", "widths")["points"]
    assert {point["verdict"] for point in results} == {"SUCCEEDED"}


def test_a_search_that_learns_asks_for_its_points_while_it_runs(desk: Desk) -> None:
    desk.file.write_text(
        "name: widths\njob: job.yaml\nlimits: {usd: 20, parallel: 2}\n"
        "search: {method: tpe, samples: 7, seed: 1, space: {train.optim.lr: {log: [1e-4, 1e-1]}}}\n"
    )
    code, _, err = desk.submit()
    assert code == 0, err
    assert "a search of 7 points" in err
    points = desk.document("batch", "results", "widths")["points"]
    assert sorted(point["number"] for point in points) == list(range(1, 8))
    assert len({point["values"]["train.optim.lr"] for point in points}) == 7
    assert all(run.reserved_usd == 3.0 for run in desk.ledger.runs())
    assert desk.submit()[0] == 0 and desk.market.rentals == 7
    plan = desk.document("batch", "submit", str(desk.file), "--dry-run")
    assert (plan["count"], plan["at_most_usd"]) == (7, 21.0)
