"""`auto` in a job file, as the commands answer it: the number is what is shown, rented and kept."""

from typing import Any

import pytest

from tests.fakebox import Training
from tests.jobs import workloads
from tests.launcher.terminal import CRASH, Terminal
from vastrun.launcher.commands.estimate import EstimateError
from vastrun.launcher.config import read_job

AUTO = ("--set", "resources.gpu_memory_gb=auto")


def sizes(terminal: Terminal) -> list[object]:
    """Those of all runs, as they are kept."""
    return [read_job(run.spec_json).resources.gpu_memory_gb for run in terminal.ledger.runs()]


def test_plan_shows_the_number_that_auto_comes_to(terminal: Terminal) -> None:
    terminal.estimator.answer = workloads(strategy="ddp", large_gb=10.0)
    end = terminal.type("plan", str(terminal.job), *AUTO, "--json")
    assert "resources.gpu_memory_gb: auto is 12.3: " in end.stderr
    job = terminal.document("plan", str(terminal.job), *AUTO)["job"]
    assert job["resources"]["gpu_memory_gb"] == 12.3


def test_a_run_keeps_its_answer_and_another_attempt_has_the_same(terminal: Terminal) -> None:
    terminal.estimator.answer = workloads(strategy="ddp", large_gb=10.0)
    again = Terminal(terminal.folder / "again", CRASH, Training())
    again.estimator.answer = workloads(strategy="ddp", large_gb=10.0)
    assert again.launch(*AUTO, "--set", "retry.signal=1").exit_code == 0
    assert sizes(again) == [12.3, 12.3]
    assert "resources.gpu_memory_gb: auto is 12.3: " in terminal.launch(*AUTO, "--dry-run").stderr


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (EstimateError("python has no torch; pip brings it"), "auto: python has no torch; pip brings it"),
        (workloads(strategy="ddp", large_gb=1e6), "no GPU is large enough"),
    ],
)
def test_nothing_is_rented_where_auto_has_no_answer(terminal: Terminal, answer: Any, fault: str) -> None:
    terminal.estimator.answer = answer
    end = terminal.launch(*AUTO)
    assert (end.exit_code, terminal.market.rentals, sizes(terminal)) == (2, 0, [])
    (told,) = [line for line in end.stderr.splitlines() if line.startswith("error: ")]
    assert fault in told
    assert "--set resources.gpu_memory_gb=24" in end.stderr


@pytest.mark.parametrize("command", ["hold", "rehearse"])
def test_every_command_that_runs_a_job_answers_it_first(command: str, terminal: Terminal) -> None:
    terminal.estimator.answer = EstimateError("python has no torch")
    words = ["train"] if command == "rehearse" else ["-y"]
    end = terminal.type(command, str(terminal.job), *words, *AUTO)
    assert (end.exit_code, "cannot estimate auto" in end.stderr) == (2, True)
