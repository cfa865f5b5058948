"""Trainings that fail and begin again on the same box: what they lose, what they change, what they leave."""

import json
import signal
from pathlib import Path

import pytest

from tests.onstart.supervision.forked import Supervised, Train
from tests.waiting import eventually
from vastrun.contract import layout
from vastrun.onstart.supervision.launch import healthy_gpus

pytestmark = pytest.mark.torch

CURVE = 1e-5


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """Loss by step, with two windows at once on each of two ranks."""
    run = Supervised(tmp_path_factory.mktemp("undisturbed") / "box", train={"micro_batch": 2})
    assert run.outcome().reason == "finished", run.log()
    return run.losses()


@pytest.mark.parametrize(("what", "reason"), [("SIGKILL", "signal"), ("sleep", "hang")])
@pytest.mark.slow
def test_a_training_that_lost_a_rank_goes_on_from_its_newest_checkpoint(
    what: str, reason: str, train: Train, undisturbed: dict[int, float]
) -> None:
    run = train({"what": what, "where": "forward", "step": 13, "saved": 10}, stall_s=5)
    outcome = run.outcome()

    assert (outcome.reason, outcome.detail) == ("finished", "all 2 ranks exited 0")
    first, second = outcome.starts
    assert (first.reason, first.checkpoint, second.reason) == (reason, 10, "finished")
    assert "resumes after step 10" in run.log()
    assert "supervisor restart 1 on 2 ranks" in run.log()
    assert run.losses() == pytest.approx(undisturbed, abs=CURVE)
    former = run.box / layout.STARTS / "0"
    assert json.loads((former / "ranks/rank-1.process.json").read_text())["exit_code"] == -signal.SIGKILL
    assert (former / "raw/rank-0.log").is_file()
    assert (former / "heartbeat/rank-1").is_file()
    assert bool((former / "stacks/rank-1.txt").read_text()) == (what == "sleep")
    assert json.loads((run.box / layout.RANKS / "rank-1.process.json").read_text())["exit_code"] == 0


@pytest.mark.parametrize(
    ("strategy", "where", "step", "rank"),
    [
        ("ddp", "backward", 13, 0),
        ("fsdp2", "backward", 0, 1),
        ("ddp", "forward", 0, 1),
        ("fsdp2", "optimizer", 13, 0),
    ],
)
@pytest.mark.slow
def test_ranks_out_of_memory_begin_again_with_half_the_micro_batch_on_the_same_curve(
    strategy: str, where: str, step: int, rank: int, train: Train, undisturbed: dict[int, float]
) -> None:
    fault = {"what": "out of memory", "where": where, "step": step, "rank": rank, "above": 2, "starts": 9}
    run = train(fault, train={"strategy": strategy})
    outcome = run.outcome()
    assert outcome.reason == "finished", run.log()
    assert [(a.reason, a.micro_batch) for a in outcome.starts] == [("oom", 4), ("finished", 2)]
    assert run.losses() == pytest.approx(undisturbed, abs=CURVE)


def test_what_never_fits_ends_when_a_single_window_does_not(train: Train) -> None:
    fault = {"what": "out of memory", "where": "backward", "step": 0, "rank": 0, "starts": 9}
    run = train(fault, ranks=1, train={"batch": 4})
    outcome = run.outcome()
    assert (outcome.reason, outcome.starts[-1].micro_batch) == ("oom", 1)
    assert [start.micro_batch for start in outcome.starts] == [4, 2, 1]
    assert "no restart: a micro-batch of 1 does not fit" in run.log()


def test_a_stop_before_the_next_start_is_the_end(train: Train) -> None:
    run = train({"what": "SIGKILL", "where": "forward", "step": 0, "rank": 0, "starts": 9}, ranks=1)
    eventually(lambda: run.log().count("was killed by SIGKILL") == 2 or run.process.exitcode is not None)
    (run.box / layout.STOP).write_text("time_limit\n")
    outcome = run.outcome()

    seen = (outcome.reason, outcome.stop_cause, len(outcome.starts))
    assert seen == ("stopped", "time_limit", 2), run.log()
    assert outcome.detail.startswith(
        "stopped at the time limit before the ranks were restarted, after: rank 0"
    )


def test_a_rank_that_left_early_ends_the_others_although_they_do_not_notice(train: Train) -> None:
    asleep = {"what": "sleep", "where": "forward", "rank": 0}
    run = train(asleep, {"what": "exit 0", "where": "forward", "rank": 1}, restarts={})
    outcome = run.outcome()
    assert outcome.detail == "rank 1 exited with code 0 at step 3 (forward) before the training was done"
    assert [(end.exit_code, end.ended_by_us) for end in outcome.ranks] == [
        (-signal.SIGKILL, True),
        (0, False),
    ]


def smi(folder: Path, text: str, *, exit_code: int = 0) -> dict[str, str]:
    """The environment of a machine whose nvidia-smi prints this."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nprintf '{text}'\nexit {exit_code}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_gpus_that_do_not_answer_are_left_out(tmp_path: Path) -> None:
    lost = (
        r"0, GPU-a\nUnable to determine the device handle for GPU1: 0000:41:00.0: Unknown Error\n2, GPU-c\n"
    )
    env = smi(tmp_path, lost)
    assert healthy_gpus(env) == ("GPU-a", "GPU-c")
    assert healthy_gpus({**env, "CUDA_VISIBLE_DEVICES": "0,1"}) == ("GPU-a",)
    assert healthy_gpus({**env, "CUDA_VISIBLE_DEVICES": "GPU-c"}) == ("GPU-c",)


def test_what_no_nvidia_smi_can_tell_is_not_known(tmp_path: Path) -> None:
    assert healthy_gpus(smi(tmp_path, "Failed to initialize NVML", exit_code=255)) is None
    assert healthy_gpus({"PATH": str(tmp_path / "empty")}) is None
