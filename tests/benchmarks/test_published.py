"""PDEBench's figures: the jobs that reproduce them, and the table that their runs fill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.published import FILES, PAGE, PublishedFile, Reached, filled, main, row_of
from vastrun.launcher.config.job_loader import load_job
from vastrun.launcher.core.job import JobSpec
from vastrun.trainer.data import advection, burgers, darcy
from vastrun.trainer.evaluation.evaluation import WHOLE

ROOT = Path(__file__).parents[2]
PROBLEMS = {"advection": advection.PROBLEM, "burgers": burgers.PROBLEM, "darcy": darcy.PROBLEM}
BY_NAME = pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)


def spec_of(file: PublishedFile) -> JobSpec:
    path = ROOT / f"configs/{file.job}.yaml"
    return load_job(path.read_text(encoding="utf-8"), str(path), file.changes)


@BY_NAME
def test_a_job_downloads_the_very_file_that_its_training_reads(file: PublishedFile) -> None:
    spec = spec_of(file)
    assert spec.train is not None
    (task,) = spec.train.data
    (parameter,) = {"advection": task.betas, "burgers": task.nus, "darcy": task.sources}[task.task]
    read = PROBLEMS[task.task].path_of(Path("data"), parameter)
    (data,) = spec.data
    assert data.target == read.name
    assert data.url.startswith("https://darus.uni-stuttgart.de/api/access/datafile/")
    assert data.md5 is not None


def outputs(folder: Path, *, nrmse: float) -> Path:
    """Of a run on a rented machine."""
    errors = {"rollout": nrmse, "persistence": 0.8, "spatial_mean": 1.0, "blind": 0.5}
    part = {name: {"nrmse": error} for name, error in errors.items()}
    (folder / "report").mkdir(parents=True)
    (folder / "report/scores.json").write_text(json.dumps({"advection": {"parts": {WHOLE: part}}}))
    run = {"created_at": 1000.0, "ended_at": 6400.0, "usd": 0.614, "steps": 200000}
    offer = {"gpus": 1, "gpu_name": "RTX 4090"}
    (folder / "result.json").write_text(json.dumps({"run": {**run, "offer": offer}}))
    return folder


def test_a_run_fills_its_row_and_leaves_those_of_others(tmp_path: Path) -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    first, second = FILES[:2]
    for number, file in enumerate((first, second)):
        reached = Reached.of_outputs(outputs(tmp_path / file.name, nrmse=0.0051 + number), "advection")
        page = filled(page, file.name, row_of(file, reached))
    assert (
        "| advection, beta 0.1 | 0.0077 | 0.0033 | **0.0051** | 0.8 | 200,000 | 1.5 | 0.61 | 1 x RTX" in page
    )
    assert "| advection, beta 0.4 | 0.01 | 0.0046 | **1** | 0.8 |" in page
    assert page.count("\n| ") == (ROOT / PAGE).read_text(encoding="utf-8").count("\n| ")


def test_the_page_has_a_row_for_each_file_in_their_order() -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    assert filled(page, "", "") == page


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["advection"], "expected one of 'advection, beta 0.1', "),
        (["--page", "README.md"], "error: README.md: expected the lines <!-- published: begin --> and "),
        (["--page", "none.md"], "error: none.md: No such file or directory"),
    ],
)
def test_what_cannot_work_is_told_before_anything_is_rented(
    words: list[str],
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as ended:
        main(words)
    said = capsys.readouterr()
    assert ended.value.code and told in f"{ended.value.code}: {said.err}"
    assert said.out == ""


@pytest.mark.slow
def test_the_whole_road_is_walked_on_this_computer_and_writes_nothing(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    changes = [
        "data=[]",
        "resources.gpus=0",
        "resources.gpu_names=[]",
        "resources.disk_gb=8",
        "train.steps=40",
        "train.batch=8",
    ]
    changes += ["train.evaluate_every=20", "train.checkpoint_every=20", "train.model.dim=8"]
    changes += ["train.data.train=32", "train.data.validation=8", "train.data.test=8"]
    words = [word for change in changes for word in ("--set", change)]
    command = [
        sys.executable,
        "-m",
        "benchmarks.published",
        "--provider",
        "local",
        "--page",
        str(page),
        *words,
    ]
    command += ["--out", str(tmp_path / "runs")]
    variables = {**os.environ, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(
        [*command, "advection, beta 1.0"], cwd=ROOT, env=variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    row = done.stdout.splitlines()[-1]
    assert row.startswith("| advection, beta 1.0 | 0.0097 | 0.0047 | **")
    assert row.endswith("| 0.00 | a CPU |")
    assert not page.exists()
    (outputs,) = (tmp_path / "runs").iterdir()
    assert outputs.name.startswith("advection-beta-1.0-")
    assert (outputs / "checkpoints").is_dir()
