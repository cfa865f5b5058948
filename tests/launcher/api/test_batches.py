"""Batches as a program starts, waits for, reads and stops them, on a fake market."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.fakebox import Training
from tests.launcher.api.notebook import JOB, Notebook
from tests.launcher.terminal import CRASH
from vastrun.launcher.api.drivers import Target
from vastrun.launcher.config.job_loader import load_job
from vastrun.launcher.core import Cause, Verdict
from vastrun.launcher.core.errors import AuthError, JobFileError, JobValueError, StorageError, UsageError

LONG = Training(seconds=200.0)
BATCH: dict[str, Any] = {
    "name": "widths",
    "job": "job.yaml",
    "grid": {"train.seed": [1, 2, 3], "train.batch": [8, 16]},
    "limits": {"usd": 20, "parallel": 3},
}


def test_a_batch_returns_at_once_and_its_launcher_runs_every_point(notebook: Notebook) -> None:
    batch = notebook.client.batch(BATCH)
    status = batch.status()
    assert (status.points, status.waiting, status.is_driven, status.budget_usd) == (6, 6, True, 20.0)
    assert notebook.started == [Target("batch", "widths")] and notebook.market.rentals == 0
    rows = batch.wait()
    assert [row.verdict for row in rows] == [Verdict.SUCCEEDED] * 6
    status = batch.status()
    assert (status.succeeded, status.failed, status.is_driven, status.reason) == (6, 0, False, "")
    assert status.spent_usd == pytest.approx(sum(row.usd for row in rows))
    assert batch.folder == notebook.folder / "batches" / "widths"
    assert {row.outputs and row.outputs.parent for row in rows} == {batch.folder}
    assert notebook.machines() == 0 and repr(batch).startswith("<batch widths: 6 of 6 ended, $")


def test_the_rows_are_those_of_the_command_line_the_best_first(notebook: Notebook) -> None:
    rows = notebook.client.batch(BATCH).wait()
    points = notebook.document("batch", "results", "widths")["points"]
    assert [row.values for row in rows] == [point["values"] for point in points]
    assert [row.metric for row in rows] == [point["metric"] for point in points]
    metrics = [row.metric for row in rows if row.metric is not None]
    assert metrics == sorted(metrics)
    assert set(asdict(rows[0])) >= {"number", "values", "verdict", "metric", "usd", "hours", "run"}
    assert notebook.client.run(rows[0].run or "").result().outputs == rows[0].outputs


@pytest.mark.parametrize("form", ["a file", "text", "a dict with its job", "a dict with a JobSpec"])
def test_a_batch_may_be_a_file_text_or_a_dict(form: str, notebook: Notebook) -> None:
    job = notebook.job.read_text()
    batch = {
        "a file": "batch.yaml",
        "text": notebook.file.read_text(),
        "a dict with its job": {**BATCH, "job": JOB},
        "a dict with a JobSpec": {**BATCH, "job": load_job(job, "job.yaml", (), str(notebook.folder))},
    }[form]
    handle = notebook.client.batch(batch)
    points = notebook.ledger.batches.points(handle.name)
    assert [dict(point.values) for point in points] == [
        {"train.seed": seed, "train.batch": size} for seed in (1, 2, 3) for size in (8, 16)
    ]


def test_all_faults_of_a_batch_are_raised_before_anything_is_begun(notebook: Notebook) -> None:
    with pytest.raises(JobFileError, match=r"train\.sed: unknown key; did you mean seed"):
        notebook.client.batch({**BATCH, "grid": {"train.sed": [1]}})
    with pytest.raises(JobValueError, match=r"batch: limits\.usd: missing; machines cost money here"):
        notebook.client.batch({**BATCH, "limits": {"parallel": 3}})
    (notebook.folder / "batches" / "widths").mkdir(parents=True)
    (notebook.folder / "batches" / "widths" / "thesis.tex").touch()
    with pytest.raises(UsageError, match="holds other files"):
        notebook.client.batch(BATCH)
    assert not notebook.ledger.batches.all() and not notebook.started


def test_a_sweep_is_that_of_the_command_line(notebook: Notebook) -> None:
    typed = (
        "sweep",
        "job.yaml",
        "train.seed=1,2",
        "train.noise=0.1..0.2",
        "--samples",
        "2",
        "--usd",
        "9",
        "-y",
    )
    assert notebook.type(*typed).exit_code == 0
    values = {"train.seed": [1, 2], "train.noise": "0.1..0.2"}
    rows = notebook.client.sweep("job.yaml", values, samples=2, usd=9).wait()
    assert len(rows) == 4 and notebook.market.rentals == 4


def test_a_sweep_of_a_dict_is_named_after_its_job(notebook: Notebook) -> None:
    batch = notebook.client.sweep(JOB, {"env.WHERE": ["a..b", "x, y"]}, usd=9, parallel=2, name=None)
    assert batch.name == "demo-sweep"
    points = notebook.ledger.batches.points("demo-sweep")
    assert [point.values["env.WHERE"] for point in points] == ["a..b", "x, y"]
    with pytest.raises(UsageError, match=r"train\.seed: an empty list"):
        notebook.client.sweep(JOB, {"train.seed": []}, usd=9)


def test_what_a_sweep_is_given_is_checked_as_a_file_is(notebook: Notebook) -> None:
    seeds = {"train.seed": [1, 2]}
    with pytest.raises(JobFileError) as caught:
        notebook.client.sweep(JOB, seeds, usd=-1, parallel=0, name="no/name")
    assert [fault.partition(": ")[2].partition(":")[0] for fault in caught.value.faults] == [
        "limits.parallel",
        "limits.usd",
        "name",
    ]
    with pytest.raises(UsageError, match="samples: expected a whole number from 1 to 10,000, got 0"):
        notebook.client.sweep(JOB, {"train.noise": "0.1..0.2"}, usd=9, samples=0)
    assert not notebook.ledger.batches.all()


@pytest.mark.slow
def test_a_wait_has_an_end_and_the_batch_goes_on(tmp_path: Path) -> None:
    notebook = Notebook(tmp_path, LONG)
    batch = notebook.client.batch(BATCH | {"job": JOB}, out=tmp_path / "out")
    with pytest.raises(TimeoutError, match=r"batch widths has not ended within 60 s"):
        batch.wait(timeout=60)
    assert (batch.status().running, batch.status().waiting) == (3, 3)
    assert [row.verdict for row in batch.results()] == [None] * 6
    assert len([row for row in batch.wait() if row.verdict is Verdict.SUCCEEDED]) == 6


@pytest.mark.slow
def test_a_stopped_batch_starts_nothing_more_until_it_is_resumed(tmp_path: Path) -> None:
    notebook = Notebook(tmp_path, LONG)
    batch = notebook.client.batch(BATCH | {"job": JOB}, out=tmp_path / "out")
    with pytest.raises(TimeoutError):
        batch.wait(timeout=60)
    batch.stop()
    verdicts = sorted(str(row.verdict) for row in batch.wait())
    assert verdicts == ["None"] * 3 + ["STOPPED"] * 3
    assert notebook.machines() == 0 and len(notebook.started) == 1
    batch.resume()
    assert sorted(str(row.verdict) for row in batch.wait()) == ["STOPPED"] * 3 + ["SUCCEEDED"] * 3


def test_a_search_that_has_more_to_ask_is_driven_on(notebook: Notebook) -> None:
    def searched(samples: int) -> dict[str, Any]:
        space = {"train.optim.lr": {"log": [1e-4, 1e-1]}}
        search = {"method": "tpe", "samples": samples, "space": space}
        return {"name": "lr", "job": "job.yaml", "search": search, "limits": {"usd": 20, "parallel": 1}}

    assert len(notebook.client.batch(searched(1)).wait()) == 1
    notebook.troubles = [StorageError("killed before it asked for more")]
    batch = notebook.client.batch(searched(3))
    with pytest.raises(StorageError):
        batch.wait()
    assert len(batch.wait()) == 3
    assert notebook.market.rentals == 3


def test_a_batch_that_ended_early_is_not_driven_on_by_a_wait(tmp_path: Path) -> None:
    notebook = Notebook(tmp_path, CRASH)
    batch = notebook.client.batch(BATCH | {"job": JOB}, out=tmp_path / "out")
    batch.wait()
    assert "same cause, signal" in batch.status().reason
    assert len(batch.wait()) == 6 and len(notebook.started) == 1


def test_points_that_failed_are_run_again(tmp_path: Path) -> None:
    notebook = Notebook(tmp_path, Training(), CRASH, Training())
    batch = notebook.client.batch(BATCH | {"job": JOB}, out=tmp_path / "out")
    (failed,) = [row for row in batch.wait() if row.verdict is not Verdict.SUCCEEDED]
    assert (failed.verdict, failed.cause) == (Verdict.FAILED, Cause.SIGNAL)
    assert batch.retry(Cause.SIGNAL) == 1
    assert all(row.verdict is Verdict.SUCCEEDED for row in batch.wait())
    with pytest.raises(UsageError, match="no point of widths has failed"):
        batch.retry()


def test_what_stops_a_launcher_is_raised_where_its_batch_is_waited_for(notebook: Notebook) -> None:
    notebook.troubles = [AuthError("the key is refused")]
    batch = notebook.client.batch(BATCH)
    with pytest.raises(AuthError, match="the key is refused"):
        batch.wait()
    assert len(batch.wait()) == 6 and len(notebook.started) == 2


def test_batches_are_listed_and_found_by_name(notebook: Notebook) -> None:
    assert notebook.client.batches() == []
    notebook.client.batch(BATCH)
    assert [batch.name for batch in notebook.client.batches()] == ["widths"]
    assert notebook.client.find_batch("widths").status().points == 6
    with pytest.raises(UsageError, match="no batch is called 'depths'"):
        notebook.client.find_batch("depths")


def test_another_job_under_the_name_of_a_batch_is_a_batch_of_its_own(notebook: Notebook) -> None:
    def batch(steps: int, *seeds: int) -> str:
        job = {**JOB, "train": {**JOB["train"], "steps": steps}}
        return notebook.client.batch({**BATCH, "job": job, "grid": {"train.seed": list(seeds)}}).name

    assert [batch(10, 1), batch(10, 1, 2), batch(20, 1), batch(20, 1, 3), batch(10, 2)] == [
        "widths",
        "widths",
        "widths-2",
        "widths-2",
        "widths",
    ]


def test_a_job_needs_no_limit_of_its_own_where_its_batch_has_one(notebook: Notebook) -> None:
    job = {**JOB, "limits": {"hours": 1}}
    batch = notebook.client.batch({**BATCH, "job": job, "grid": {"train.seed": [1, 2]}})
    rows = batch.wait()
    assert [row.verdict for row in rows] == [Verdict.SUCCEEDED] * 2
    assert sum(row.usd for row in rows) < 20.0
