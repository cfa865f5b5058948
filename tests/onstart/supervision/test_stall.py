"""The stall rule: who stands still for too long, and who is waited for."""

from pathlib import Path

import pytest

from tests.onstart.supervision.launches import read_job
from vastrun import trainer
from vastrun.onstart.supervision.progress import (
    RankProgress,
    collective_of,
    find_stuck,
    observable_ranks,
    stall_limit_s,
    stalled,
)
from vastrun.onstart.supervision.stacks import StackFrame

JOB = read_job(stall_s=10, start_s=60)
TORCH = "/venv/lib/python3.11/site-packages/torch"
USER = StackFrame(file="/box/code/train.py", line="12", function="main")


def call(place: str, function: str) -> StackFrame:
    return StackFrame(file=f"{TORCH}/{place}", line="1", function=function)


def collective(name: str) -> tuple[StackFrame, ...]:
    return (
        call("distributed/distributed_c10d.py", name),
        call("distributed/c10d_logger.py", "wrapper"),
        USER,
    )


COLLECTIVE = collective("all_reduce")
BACKWARD = (call("autograd/graph.py", "_engine_run_backward"), call("_tensor.py", "backward"), USER)
GATHER = (
    call("_ops.py", "__call__"),
    call("distributed/fsdp/_fully_shard/_fsdp_param_group.py", "wait_for_unshard"),
    call("nn/modules/module.py", "_call_impl"),
    USER,
)
OURS = Path(trainer.__file__).parent
EVENT = (
    call("cuda/streams.py", "synchronize"),
    StackFrame(file=str(OURS / "telemetry/reports.py"), line="44", function="arrived"),
    USER,
)
DEVICE = (call("cuda/__init__.py", "synchronize"), USER)
READ = (
    call("cuda/streams.py", "synchronize"),
    StackFrame(file=str(OURS / "distributed/group.py"), line="51", function="mean_of"),
    USER,
)
SLEEP = (StackFrame(file="/usr/lib/python3.11/threading.py", line="331", function="wait"), USER)


def at(
    rank: int = 0,
    step: int = 5,
    activity: str = "forward",
    still_s: float = 0.0,
    frames: tuple[StackFrame, ...] = (USER,),
) -> RankProgress:
    return RankProgress(rank=rank, step=step, activity=activity, still_s=still_s, frames=frames)


@pytest.mark.parametrize(
    ("activity", "limit_s"),
    [
        ("forward", 10),
        ("step", 10),
        ("done", 10),
        ("start", 60),
        ("", 60),
        ("compile", 60),
        ("eval", 60),
        ("checkpoint", 60),
    ],
)
def test_each_activity_has_its_limit(activity: str, limit_s: float) -> None:
    assert not stalled([at(activity=activity, still_s=limit_s - 0.1)], JOB)
    assert stalled([at(activity=activity, still_s=limit_s + 0.1)], JOB)


def test_a_job_may_give_a_slow_activity_a_limit_of_its_own() -> None:
    train = {"steps": 5, "limits": {"compile_s": 100, "checkpoint_s": 3}}
    job = read_job(train=train, stall_s=10, start_s=60)
    activities = ("start", "compile", "forward", "eval", "checkpoint")
    assert [stall_limit_s(job, activity) for activity in activities] == [60, 100, 10, 60, 3]


def test_one_rank_that_stands_still_is_enough() -> None:
    assert stalled([at(rank=0, still_s=1), at(rank=1, still_s=11)], JOB)


@pytest.mark.parametrize(
    ("other", "stuck"),
    [
        # The rank furthest behind; within a step, the earlier activity.
        (at(step=6, activity="data"), at(rank=1, step=5, activity="optimizer")),
        (at(activity="backward"), at(rank=1, activity="data")),
        # An activity of the user's own is compared like a step.
        (at(activity="validate"), at(rank=1, activity="data")),
        # One that called its collective by hand.
        (at(frames=BACKWARD), at(rank=1, frames=collective("broadcast"))),
        (at(frames=GATHER), at(rank=1, frames=collective("broadcast"))),
    ],
)
def test_of_two_ranks_the_one_that_the_other_waits_for_is_stuck(
    other: RankProgress, stuck: RankProgress
) -> None:
    assert find_stuck([other, stuck]) == stuck


@pytest.mark.parametrize("waiting", [COLLECTIVE, BACKWARD, GATHER, EVENT, DEVICE, READ])
def test_the_rank_that_waits_for_nobody_is_stuck_wherever_it_stands(waiting: tuple[StackFrame, ...]) -> None:
    assert find_stuck([at(rank=0, frames=waiting), at(rank=1, frames=SLEEP)]).rank == 1
    assert find_stuck([at(rank=0, frames=waiting), at(rank=1, activity="backward", frames=SLEEP)]).rank == 1


@pytest.mark.parametrize(
    ("most", "odd"),
    [
        (BACKWARD, at(rank=1, activity="backward", frames=collective("broadcast"))),
        (EVENT, at(rank=1, activity="backward", frames=collective("broadcast"))),  # for their GPUs
        (EVENT, at(rank=1, activity="optimizer", frames=SLEEP)),
        (GATHER, at(rank=1, activity="optimizer", frames=BACKWARD)),  # in collectives of the strategy
    ],
)
def test_of_ranks_that_all_wait_the_odd_one_is_stuck(most: tuple[StackFrame, ...], odd: RankProgress) -> None:
    others = [at(rank=rank, activity="backward", frames=most) for rank in (0, 2, 3)]
    assert find_stuck([*others, odd]) == odd


def test_of_two_ranks_the_one_whose_collective_is_not_the_trainers_is_stuck() -> None:
    ours = StackFrame(file=str(Path(trainer.__file__).with_name("loop.py")), line="1", function="highest")
    vote = at(rank=0, frames=(*COLLECTIVE[:-1], ours, USER))
    assert find_stuck([vote, at(rank=1, frames=collective("broadcast"))], OURS).rank == 1


def test_a_hook_of_the_users_own_in_a_backward_pass_waits_for_nobody() -> None:
    assert collective_of(at(frames=(USER, *BACKWARD))) is None
    assert collective_of(at(frames=BACKWARD)) == "backward"
    assert collective_of(at(frames=GATHER)) == "wait_for_unshard"
    assert collective_of(at(frames=(call("cuda/__init__.py", "_lazy_init"), USER))) is None


def test_ranks_that_never_beat_are_not_judged_when_others_do() -> None:
    told = observable_ranks([at(rank=0, still_s=2), at(rank=1, activity="", still_s=99)], silent_s=50)
    assert [rank_progress.rank for rank_progress in told] == [0]


@pytest.mark.parametrize(
    ("still_s", "silent_s", "is_stalled"),
    # A line in any log moves all ranks; before the first line the limit of the start holds.
    [(99, 3, False), (99, 11, True), (59, None, False), (61, None, True)],
)
def test_without_heartbeats_ranks_are_judged_by_their_logs(
    still_s: float, silent_s: float | None, is_stalled: bool
) -> None:
    silent = [at(rank=rank, activity="", still_s=still_s) for rank in (0, 1)]
    assert stalled(observable_ranks(silent, silent_s=silent_s), JOB) is is_stalled


def test_without_heartbeats_the_rank_that_waits_for_nobody_is_stuck() -> None:
    silent = [at(rank=0, activity="", frames=COLLECTIVE), at(rank=1, activity="")]
    assert find_stuck(observable_ranks(silent, silent_s=99)).rank == 1
