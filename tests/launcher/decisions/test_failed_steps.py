"""A run without an outcome ends by the step that failed before its training, or by what stopped it."""

import json

import pytest

from tests.jobs import train_job
from tests.launcher.decisions.outcomes import STOPS, evidence
from vastrun.contract.data_files import EXIT_OF_BLAME
from vastrun.launcher.core import Cause, StepEnd
from vastrun.launcher.decisions.run_assessment import CAUSE_OF_STEP, assess_run
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.box_reader import parse_step_ends
from vastrun.launcher.package_files import onstart_dir
from vastrun.trainer.job.program import TrainProgram


def test_without_an_outcome_the_failed_step_tells() -> None:
    steps = b'{"step": "10-check-gpu", "exit_code": 0}\n{"step": "30-unpack", "exit_code": 2}\n'
    assessment = assess_run(evidence(None, steps=parse_step_ends(steps), exit_code=2), train_job())
    assert assessment.cause is Cause.SETUP
    assert assessment.detail == "unpack failed with exit code 2"


def test_no_more_steps_are_read_than_a_start_may_have() -> None:
    line = b'{"step":"unpack","exit_code":0,"seconds":0.1,"last_line":""}\n'
    assert len(parse_step_ends(line * caps.BOOT_STEPS)) == caps.BOOT_STEPS
    assert len(parse_step_ends((line * (caps.BOOT_STEPS + 1)).rstrip())) == caps.BOOT_STEPS


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (b"torch is built for the CPU only: take an image with CUDA",) * 2,
        (rb"\u001b[31mno GPU\u001b[0m\u202e", b"no GPU"),
        (b"", b"with exit code 78"),
        (b"\xff", "\ufffd".encode()),
    ],
)
def test_a_failed_step_tells_its_cause_not_its_number(said: bytes, shown: bytes) -> None:
    line = b'{"step":"20-check-comm","exit_code":78,"seconds":0.1,"last_line":"%s"}\n' % said
    assessment = assess_run(evidence(None, steps=parse_step_ends(line), exit_code=78), train_job())
    assert assessment.cause is Cause.SETUP
    assert assessment.detail.removeprefix("check-comm failed").lstrip(": ") == shown.decode()


@pytest.mark.parametrize(("exit_code", "cause"), [(1, Cause.HOST), (78, Cause.SETUP)])
def test_ranks_that_cannot_talk_are_the_hosts_fault_or_the_images(exit_code: int, cause: Cause) -> None:
    steps = (StepEnd(step="20-check-comm", exit_code=exit_code, seconds=1.0),)
    assert assess_run(evidence(None, steps=steps, exit_code=exit_code), train_job()).cause is cause


@pytest.mark.parametrize(
    ("exit_code", "cause"),
    [
        (EXIT_OF_BLAME["job"], Cause.USER_ERROR),
        (EXIT_OF_BLAME["server"], Cause.DATA),
        (EXIT_OF_BLAME["disk"], Cause.DISK),
        (EXIT_OF_BLAME["host"], Cause.HOST),
        (1, Cause.DATA),
        (137, Cause.DATA),
    ],
)
def test_a_failed_download_blames_job_server_disk_or_host(exit_code: int, cause: Cause) -> None:
    steps = (StepEnd(step="38-download", exit_code=exit_code, seconds=1.0, last_line="a.h5: why"),)
    assessment = assess_run(evidence(None, steps=steps, exit_code=exit_code), train_job())
    assert (assessment.cause, assessment.detail) == (cause, "download failed: a.h5: why")
    other = (StepEnd(step="40-data", exit_code=exit_code, seconds=1.0),)
    assert assess_run(evidence(None, steps=other, exit_code=exit_code), train_job()).cause is Cause.DATA


def test_nodes_that_reach_each_other_too_slowly_are_no_single_hosts_fault() -> None:
    said = "all-reduce 2 nodes nccl 16 MB: only 400 Mbit/s between the nodes, expected at least 1000"
    steps = (StepEnd(step="22-check-nodes", exit_code=1, seconds=1.0, last_line=said),)
    assessment = assess_run(evidence(None, steps=steps, exit_code=1), train_job(nodes=2))
    assert (assessment.cause, assessment.detail) == (Cause.COMMUNICATION, f"check-nodes failed: {said}")


@pytest.mark.parametrize(("cause", "judged"), [*STOPS, ("because I say so", Cause.DATA)])
def test_a_step_that_a_stop_ended_is_nobodys_fault(cause: str, judged: Cause) -> None:
    steps = parse_step_ends(
        b'{"step":"40-data","exit_code":143,"seconds":2.0,"stop":"%s"}\n' % cause.encode()
    )
    assert assess_run(evidence(None, steps=steps, exit_code=143), train_job()).cause is judged


def test_a_step_that_failed_before_it_was_stopped_is_judged_by_its_failure() -> None:
    steps = (
        StepEnd(step="30-unpack", exit_code=2, seconds=1.0),
        StepEnd(step="40-data", exit_code=143, seconds=1.0, stop="stopped"),
    )
    assert assess_run(evidence(None, steps=steps, exit_code=2), train_job()).cause is Cause.SETUP


def test_every_step_before_the_training_has_its_cause() -> None:
    steps = {path.stem for path in (onstart_dir() / "steps.d").glob("*.sh")}
    ours = {step.name for step in TrainProgram.prepare} - {"evaluate"}
    # onstart/environment.sh reports a step of its own, before the first file.
    assert {*CAUSE_OF_STEP, *ours} == steps - {"50-train"} | {"00-environment"} | ours


_OLD_PYTHON = "cannot read job.json with /usr/bin/python3: TypeError: 'type' object is not subscriptable"


@pytest.mark.parametrize(
    ("exit_code", "said", "detail"),
    [
        (78, _OLD_PYTHON, f"environment failed: {_OLD_PYTHON}"),
        (1, "", "environment failed with exit code 1"),
    ],
)
def test_a_machine_without_a_fit_python_fails_in_setup(exit_code: int, said: str, detail: str) -> None:
    line = {"step": "00-environment", "exit_code": exit_code, "seconds": 0.1, "last_line": said}
    steps = parse_step_ends(json.dumps(line).encode() + b"\n")
    assessment = assess_run(evidence(None, steps=steps, exit_code=exit_code), train_job())
    assert (assessment.cause, assessment.detail) == (Cause.SETUP, detail)


def test_a_supervisor_that_was_killed_is_a_signal_and_no_fault_of_ours() -> None:
    steps = (StepEnd(step="50-train", exit_code=137, seconds=3.0),)
    assessment = assess_run(evidence(None, exit_code=137, steps=steps), train_job())
    assert assessment.cause is Cause.SIGNAL
    assert assessment.detail == "50-train was killed by SIGKILL and left no evidence"
