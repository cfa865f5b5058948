"""The stall rule: who stands still for too long, and who is waited for."""

from pathlib import Path

import pytest

from tests.onstart.supervision.launches import read_job
from vastrun import trainer
from vastrun.onstart.supervision.stacks import StackFrame
from vastrun.onstart.supervision.stall import (
    RankProgress,
    collective_of,
    find_stuck,
    observable_ranks,
    stall_limit_s,
    stalled,
)

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


def test_the_rank_furthest_behind_is_the_stuck_one() -> None:
    assert (
        find_stuck([at(rank=0, step=6, activity="data"), at(rank=1, step=5, activity="optimizer")]).rank == 1
    )


def test_within_a_step_the_earlier_activity_is_behind() -> None:
    assert find_stuck([at(rank=0, activity="backward"), at(rank=1, activity="data")]).rank == 1


@pytest.mark.parametrize("waiting", [COLLECTIVE, BACKWARD, GATHER, EVENT, DEVICE, READ])
def test_the_rank_that_waits_for_nobody_is_stuck_wherever_it_stands(waiting: tuple[StackFrame, ...]) -> None:
    assert find_stuck([at(rank=0, frames=waiting), at(rank=1, frames=SLEEP)]).rank == 1
    assert find_stuck([at(rank=0, frames=waiting), at(rank=1, activity="backward", frames=SLEEP)]).rank == 1


def test_of_ranks_that_all_wait_the_one_in_another_collective_is_stuck() -> None:
    most = [at(rank=rank, activity="backward", frames=BACKWARD) for rank in (0, 2, 3)]
    assert find_stuck([*most, at(rank=1, activity="backward", frames=collective("broadcast"))]).rank == 1


def test_of_ranks_that_all_wait_for_their_gpus_the_one_in_a_collective_of_its_own_is_stuck() -> None:
    most = [at(rank=rank, activity="backward", frames=EVENT) for rank in (0, 2, 3)]
    assert find_stuck([*most, at(rank=1, activity="backward", frames=collective("broadcast"))]).rank == 1
    assert find_stuck([*most, at(rank=1, activity="optimizer", frames=SLEEP)]).rank == 1
    assert collective_of(at(frames=(call("cuda/__init__.py", "_lazy_init"), USER))) is None


def test_of_ranks_that_all_wait_in_collectives_of_the_strategy_the_odd_one_is_stuck() -> None:
    most = [at(rank=rank, activity="backward", frames=GATHER) for rank in (0, 2, 3)]
    assert find_stuck([*most, at(rank=1, activity="optimizer", frames=BACKWARD)]).rank == 1


@pytest.mark.parametrize("others", [BACKWARD, GATHER])
def test_the_rank_that_called_its_collective_by_hand_is_stuck(others: tuple[StackFrame, ...]) -> None:
    apart = at(rank=1, frames=collective("broadcast"))
    assert find_stuck([at(rank=0, frames=others), apart]).rank == 1


def test_of_two_ranks_the_one_whose_collective_is_not_the_trainers_is_stuck() -> None:
    ours = StackFrame(file=str(Path(trainer.__file__).with_name("loop.py")), line="1", function="highest")
    vote = at(rank=0, frames=(*COLLECTIVE[:-1], ours, USER))
    assert find_stuck([vote, at(rank=1, frames=collective("broadcast"))], OURS).rank == 1


def test_a_hook_of_the_users_own_in_a_backward_pass_waits_for_nobody() -> None:
    assert collective_of(at(frames=(USER, *BACKWARD))) is None
    assert collective_of(at(frames=BACKWARD)) == "backward"
    assert collective_of(at(frames=GATHER)) == "wait_for_unshard"


def test_a_activity_of_the_users_own_is_compared_like_a_step() -> None:
    assert find_stuck([at(rank=0, activity="validate"), at(rank=1, activity="data")]).rank == 1


def test_ranks_that_never_beat_are_not_judged_when_others_do() -> None:
    told = observable_ranks([at(rank=0, still_s=2), at(rank=1, activity="", still_s=99)], silent_s=50)
    assert [rank_progress.rank for rank_progress in told] == [0]


def test_without_heartbeats_a_line_in_any_log_moves_all_ranks() -> None:
    silent = [at(rank=0, activity="", still_s=99), at(rank=1, activity="", still_s=99)]
    assert not stalled(observable_ranks(silent, silent_s=3), JOB)
    assert stalled(observable_ranks(silent, silent_s=11), JOB)


def test_without_heartbeats_and_before_the_first_line_the_start_limit_holds() -> None:
    assert not stalled(observable_ranks([at(activity="", still_s=59)], silent_s=None), JOB)
    assert stalled(observable_ranks([at(activity="", still_s=61)], silent_s=None), JOB)


def test_without_heartbeats_the_rank_that_waits_for_nobody_is_stuck() -> None:
    silent = [at(rank=0, activity="", frames=COLLECTIVE), at(rank=1, activity="")]
    assert find_stuck(observable_ranks(silent, silent_s=99)).rank == 1
