"""What follows on ranks that failed: another start on this box, and how, or the end."""

from dataclasses import replace
from typing import Any

import pytest

from tests.onstart.supervision.concluding import started, training
from tests.onstart.supervision.launches import read_job
from vastrun.contract.job import Job
from vastrun.contract.outcome import REASONS, Reason, StartRecord
from vastrun.onstart.supervision.restarts import Start, next_start
from vastrun.trainer.job.program import MAX_RESTARTS

FIRST = Start(world_size=2)


def ended(reason: Reason, *, checkpoint: int | None = 10, micro_batch: int | None = 6) -> StartRecord:
    return started(reason, checkpoint=checkpoint, micro_batch=micro_batch)


def saving(*reasons: Reason) -> list[StartRecord]:
    """Attempts that each saved something new."""
    return [ended(reason, checkpoint=10 * number) for number, reason in enumerate(reasons)]


def restarted(*history: StartRecord, job: Job | None = None, last: Start = FIRST, **known: Any) -> Start:
    found = next_start(job or training(), history, last, known.get("healthy"), known.get("elsewhere", ()))
    assert isinstance(found, Start), found
    return found


def why_not(*history: StartRecord, job: Job | None = None, **known: Any) -> str:
    found = next_start(job or training(), history, FIRST, known.get("healthy"), known.get("elsewhere", ()))
    assert isinstance(found, str), found
    return found


def test_what_another_start_may_cure_has_a_limit_and_nothing_else_has() -> None:
    curable = {reason for reason, meaning in REASONS.items() if meaning.is_curable}
    assert set(MAX_RESTARTS) == {REASONS[reason].cause for reason in curable}
    assert set(REASONS) - curable == {
        "finished",
        "stopped",
        "error",
        "data",
        "disk",
        "diverged",
        "gate_missed",
    }


@pytest.mark.parametrize("reason", ["signal", "communication", "hang", "device"])
def test_a_training_begins_again_at_once_with_all_its_ranks(reason: Reason) -> None:
    found = restarted(ended(reason), last=Start(number=3, world_size=2, micro_batch=4))
    assert found == Start(number=4, world_size=2, micro_batch=4)


THREE = {"stages": ["operator", "refine", "distill"]}


@pytest.mark.parametrize("stage", ["operator", "refine"])
def test_a_finished_stage_is_followed_by_the_next_one_at_once(stage: str) -> None:
    last = Start(number=2, world_size=1, micro_batch=3, gpus=("GPU-1",), after_s=10.0)
    found = restarted(replace(ended("finished"), stage=stage), job=training(train=THREE), last=last)
    # On the GPUs that are left, and with a micro-batch of its own.
    assert found == Start(number=3, world_size=1, gpus=("GPU-1",))


@pytest.mark.parametrize(("reason", "stage"), [("finished", "distill"), ("gate_missed", "operator")])
def test_the_last_stage_or_one_that_missed_its_gate_is_the_end(reason: Reason, stage: str) -> None:
    last = replace(ended(reason), stage=stage)
    assert why_not(last, job=training(train=THREE)) == "the same error would recur"


def test_a_start_that_only_scored_a_stage_is_none_without_progress() -> None:
    scored = replace(ended("finished", checkpoint=10), stage="operator")
    failed = replace(ended("signal", checkpoint=10), stage="refine")
    job = training(train=THREE)
    assert restarted(ended("signal"), scored, failed, failed, job=job).number == 1


@pytest.mark.parametrize("reason", ["finished", "stopped", "error", "data", "disk"])
def test_what_would_come_again_is_not_started_again(reason: Reason) -> None:
    assert why_not(ended(reason)) == "the same error would recur"


def test_each_cause_has_a_limit_of_its_own() -> None:
    assert restarted(*saving("signal", "hang", "signal", "communication", "hang", "signal"))
    assert why_not(*saving("signal", "signal", "signal", "signal")) == "restarts allows 3 by signal"
    assert why_not(*saving("hang", "signal", "hang", "hang")) == "restarts allows 2 by hang"


def test_the_job_may_set_the_limits_and_what_it_does_not_name_is_the_end() -> None:
    job = training(restarts={"signal": 1})
    assert restarted(*saving("signal"), job=job)
    assert why_not(*saving("signal", "signal"), job=job) == "restarts allows 1 by signal"
    assert why_not(*saving("hang"), job=job) == "restarts allows 0 by hang"


def test_a_users_own_command_is_started_again_only_when_its_job_says_so() -> None:
    command = {"train": None, "command": ["python", "mine.py"]}
    assert why_not(ended("signal"), job=read_job(**command)) == "restarts allows 0 by signal"
    assert restarted(ended("oom"), job=read_job(**command, restarts={"out_of_memory": 1}))


def test_starts_that_save_nothing_new_wait_longer_and_longer_and_then_end() -> None:
    lost = ended("signal", checkpoint=None)
    assert restarted(lost).after_s == 0
    assert restarted(lost, lost).after_s > 0
    assert why_not(lost, lost, lost, job=training(restarts={"signal": 20})) == (
        "3 starts in a row saved no new checkpoint"
    )
    kept = ended("signal", checkpoint=10)
    assert restarted(kept, kept, kept, job=training(restarts={"signal": 20})).after_s > 0
    assert restarted(lost, lost, kept).after_s == 0


def test_ranks_out_of_memory_begin_again_with_half_of_what_they_computed_at_once() -> None:
    assert restarted(ended("oom", micro_batch=6)).micro_batch == 3
    assert restarted(ended("oom", micro_batch=3)).micro_batch == 1
    assert why_not(ended("oom", micro_batch=1)) == "a micro-batch of 1 does not fit"
    assert why_not(ended("oom", micro_batch=None)) == "it ran out of memory before its first step"


def test_halving_again_and_again_is_no_lack_of_progress() -> None:
    history = [ended("oom", micro_batch=2**n, checkpoint=None) for n in range(6, 0, -1)]
    assert restarted(*history).after_s == 0


def test_a_training_that_must_not_be_changed_ends_when_it_does_not_fit() -> None:
    assert why_not(ended("oom"), job=training(train={"out_of_memory": "fail"})) == (
        "train.out_of_memory is fail"
    )


def test_when_gpus_have_failed_the_most_that_divides_the_batch_goes_on_with_those_that_answer() -> None:
    job = training(ranks=4, gpus=4, train={"batch": 8})
    four, three = ("GPU-a", "GPU-b", "GPU-c", "GPU-d"), ("GPU-a", "GPU-c", "GPU-d")
    last = Start(world_size=4)
    same = restarted(ended("device"), job=job, last=last, healthy=four)
    assert same == Start(number=1, world_size=4, gpus=four)
    fewer = restarted(ended("device", micro_batch=2), job=job, last=last, healthy=three)
    assert (fewer.world_size, fewer.gpus) == (2, ("GPU-a", "GPU-c"))
    assert fewer.micro_batch == 2  # that much fits: not the four of a rank's larger share
    assert why_not(ended("device"), job=job, healthy=()) == "too few GPUs respond for this job's 4 ranks: 0"


def test_a_gpu_that_failed_is_not_used_again_where_the_machine_has_more_gpus_than_the_job_has_ranks() -> None:
    left = ("GPU-b", "GPU-c", "GPU-d")
    job = training(ranks=2, gpus=4, train={"batch": 8})
    assert restarted(ended("device"), job=job, healthy=left).gpus == ("GPU-b", "GPU-c")
    own = read_job(ranks=1, gpus=4, restarts={"host": 1})
    assert restarted(ended("device"), job=own, healthy=left).gpus == left


def test_a_users_own_program_has_all_its_ranks_or_none() -> None:
    job = read_job(gpus=2, restarts={"host": 1})
    assert why_not(ended("device"), job=job, healthy=("GPU-a",)) == (
        "too few GPUs respond for this job's 2 ranks: 1"
    )
    both = ("GPU-a", "GPU-b")
    start = restarted(ended("device"), job=job, healthy=both)
    assert (start.world_size, start.gpus) == (2, both)


FOUR: dict[str, Any] = {"ranks": 4, "gpus": 4}


@pytest.mark.parametrize(
    ("healthy", "elsewhere", "gpus"),
    [
        (("GPU-0", "GPU-1", "GPU-2"), (4, 2), ("GPU-0", "GPU-1")),
        # Of 12 windows, 3 nodes of 3 ranks could not have equal shares.
        (None, (4, 3), ()),
    ],
)
def test_ranks_are_as_many_on_each_node_as_the_gpus_of_the_poorest_carry(
    healthy: tuple[str, ...] | None, elsewhere: tuple[int, ...], gpus: tuple[str, ...]
) -> None:
    job = training(**FOUR, nodes=3)
    found = restarted(
        ended("device"), job=job, last=Start(world_size=4), healthy=healthy, elsewhere=elsewhere
    )
    assert (found.world_size, found.gpus) == (2, gpus)


@pytest.mark.parametrize(
    ("nodes", "known", "where"),
    [
        (1, {"healthy": ()}, ""),
        (2, {"healthy": ()}, " on each node"),
        (3, {"healthy": ()}, " on each node"),
        (3, {"elsewhere": (4, 0)}, " on each node"),
    ],
)
def test_where_a_node_has_no_gpu_left_each_node_is_named_only_in_a_job_that_has_several(
    nodes: int, known: dict[str, Any], where: str
) -> None:
    why = f"too few GPUs respond for this job's 4 ranks{where}: 0"
    assert why_not(ended("device"), job=training(**FOUR, nodes=nodes), **known) == why


def test_ranks_on_the_cpu_need_no_gpu() -> None:
    assert restarted(ended("signal"), job=training(gpus=0), healthy=()).world_size == 2
