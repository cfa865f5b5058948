"""`rehearse JOB fit`: which GPUs hold a job, told on a computer that has none."""

import pytest

from tests.jobs import workloads
from tests.launcher.terminal import Terminal
from vastrun.launcher.commands.estimate import EstimateError


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
