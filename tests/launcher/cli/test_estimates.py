"""Estimates of a job's workload, as the commands use them: `auto`, own models, and the GPUs that fit."""

from typing import Any

import pytest

from tests.fakebox import Training
from tests.jobs import workloads
from tests.launcher.terminal import CRASH, Terminal
from vastrun.launcher.commands.estimate import EstimateError
from vastrun.launcher.config import read_job
from vastrun.launcher.core.errors import JobValueError

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


SOURCE = "class Net:\n    def __init__(self, *, grid, channels, conditions): ...\n"
OWN = ("--set", "train.model.name=mymodel:Net", "--set", "code.path=code")


@pytest.fixture
def own(terminal: Terminal) -> Terminal:
    """A terminal with a model of the user's code."""
    (terminal.folder / "code").mkdir()
    (terminal.folder / "code" / "mymodel.py").write_text(SOURCE)
    terminal.estimator.answer = workloads(strategy="ddp")
    return terminal


def test_a_model_that_is_there_and_was_tried_is_trained(own: Terminal) -> None:
    assert own.launch(*OWN).exit_code == 0
    assert own.market.rentals == 1


@pytest.mark.parametrize("command", ["plan", "launch"])
def test_a_model_that_cannot_be_trained_is_an_error(own: Terminal, command: str) -> None:
    own.estimator.answer = JobValueError("train.model.name: mymodel:Net returned None")
    end = own.type(command, str(own.job), *OWN)
    assert (end.exit_code, own.market.rentals) == (2, 0)
    assert "train.model.name: mymodel:Net returned None" in end.stderr


def test_what_cannot_be_known_here_is_told_and_the_job_is_launched(own: Terminal) -> None:
    own.estimator.answer = EstimateError("python has no torch")
    end = own.launch(*OWN)
    assert (end.exit_code, own.market.rentals) == (0, 1)
    assert "mymodel:Net was not tried on this computer: python has no torch" in end.stderr


@pytest.fixture
def desk(terminal: Terminal) -> Terminal:
    terminal.estimator.answer = workloads(strategy="ddp", small_gb=2.0, large_gb=30.0)
    return terminal


def test_the_gpus_that_hold_the_job_are_told_with_what_is_only_estimated(desk: Terminal) -> None:
    end = desk.type("rehearse", str(desk.job), "fit")
    assert end.exit_code == 0
    assert "48 windows at once: 34.3 GB of a GPU; 1 TFLOP a step and rank" in end.stdout
    assert "estimated by roofline, not measured" in end.stdout
    assert max(map(len, end.stdout.splitlines())) <= 80
    assert [row for row in end.stdout.splitlines() if row.startswith("H100 ")]
    assert desk.market.rentals == 0


def test_as_a_document_it_has_what_is_needed_by_gpu(desk: Terminal) -> None:
    document = desk.document("rehearse", str(desk.job), "fit", "--gpu", "RTX 4090")
    assert [step["step"] for step in document["steps"]] == ["config", "fit"]
    (gpu,) = document["fit"]["gpus"]
    assert (gpu["gpu"], gpu["memory_gb"], gpu["strategy"], gpu["windows"]) == ("RTX 4090", 24.0, "ddp", 24)
    assert document["fit"]["workloads"]["workloads"][0]["flops"] == 1e12


def test_a_job_that_no_named_gpu_holds_ends_with_the_exit_code_of_no_offer(desk: Terminal) -> None:
    desk.estimator.answer = workloads(strategy="ddp", small_gb=30.0, large_gb=60.0)
    end = desk.type("rehearse", str(desk.job), "fit", "train", "--gpu", "RTX 4090")
    assert end.exit_code == 8
    assert "no room" in end.stdout
    assert "train " not in end.stdout


def test_without_torch_one_line_says_what_brings_it(desk: Terminal) -> None:
    missing = "python has no torch; python -m pip install 'vastrun[trainer]' brings it"
    desk.estimator.answer = EstimateError(missing)
    end = desk.type("rehearse", str(desk.job), "fit")
    assert (end.exit_code, end.stdout) == (1, "")
    assert f"error: {missing}" in end.stderr


def test_what_has_no_fit_is_told_with_what_to_type(desk: Terminal) -> None:
    end = desk.type("rehearse", str(desk.job), "fit", "--gpu", "GT 1030")
    assert (end.exit_code, "unknown GPU 'GT 1030'" in end.stderr) == (2, True)
    end = desk.type("rehearse", str(desk.job), "fit", "--gpu", "rtx 409")
    assert "unknown GPU 'rtx 409': did you mean RTX 4090 or RTX 3090 or RTX 4080?" in end.stderr
    end = desk.type("rehearse", str(desk.job), "fit", "--set", "resources={gpus: 0}")
    assert (end.exit_code, "--set resources.gpus=1" in end.stderr) == (2, True)
    desk.estimator.answer = None
    end = desk.type("rehearse", str(desk.job), "fit")
    assert (end.exit_code, "for the onboard trainer only" in end.stderr) == (2, True)
