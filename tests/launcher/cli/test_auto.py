"""`auto` in a job file, as the commands answer it: the number is what is shown, rented and kept."""

from __future__ import annotations

import pytest

from tests.fakebox import Training
from tests.jobs import workloads
from tests.launcher.terminal import CRASH, Terminal
from vastrun.launcher.commands.estimate import EstimateError
from vastrun.launcher.config import read_job

BATCH = ("--set", "train.batch=auto", "--set", "resources.gpu_memory_gb=20")


def batches(terminal: Terminal) -> list[object]:
    """Those of all runs, as they are kept."""
    jobs = [read_job(run.spec_json) for run in terminal.ledger.runs()]
    return [job.train.batch for job in jobs if job.train is not None]


def test_plan_shows_the_number_that_auto_comes_to(terminal: Terminal) -> None:
    terminal.estimator.answer = workloads(strategy="ddp", large_gb=10.0)
    end = terminal.type("plan", str(terminal.job), "--set", "resources.gpu_memory_gb=auto", "--json")
    assert "resources.gpu_memory_gb: auto is 12.3: " in end.stderr
    job = terminal.document("plan", str(terminal.job), *BATCH)["job"]
    assert (job["train"]["batch"], job["resources"]["gpu_memory_gb"]) == (40, 20.0)


def test_a_run_keeps_its_answer_and_another_attempt_has_the_same(terminal: Terminal) -> None:
    terminal.estimator.answer = workloads(strategy="ddp")
    again = Terminal(terminal.folder / "again", CRASH, Training())
    again.estimator.answer = workloads(strategy="ddp")
    assert again.launch(*BATCH, "--set", "retry.signal=1").exit_code == 0
    assert batches(again) == [40, 40]
    assert "train.batch: auto is 40: a GPU with 20 GB has room for 20 windows at once" in " ".join(
        terminal.launch(*BATCH, "--dry-run").stderr.split()
    )


def test_nothing_is_rented_where_auto_has_no_answer(terminal: Terminal) -> None:
    terminal.estimator.answer = EstimateError("python has no torch; pip install torch brings it")
    end = terminal.launch(*BATCH)
    assert (end.exit_code, terminal.market.rentals, batches(terminal)) == (2, 0, [])
    (told,) = [line for line in end.stderr.splitlines() if line.startswith("error: ")]
    assert "train.batch: cannot estimate auto: python has no torch; pip install torch brings it" in told
    assert "--set train.batch=48" in end.stderr


@pytest.mark.parametrize("command", ["hold", "rehearse"])
def test_every_command_that_runs_a_job_answers_it_first(command: str, terminal: Terminal) -> None:
    terminal.estimator.answer = EstimateError("python has no torch")
    words = ["train"] if command == "rehearse" else ["-y"]
    end = terminal.type(command, str(terminal.job), *words, *BATCH)
    assert (end.exit_code, "cannot estimate auto" in end.stderr) == (2, True)
