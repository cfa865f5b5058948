"""What follows on a start of the ranks of several nodes: the same on all of them."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.onstart.supervision.launches import job_of
from tests.onstart.supervision.meeting import at_once, meeting, observed
from vastrun.contract.job import Job
from vastrun.contract.outcome import Reason, StartRecord
from vastrun.contract.records import read_as
from vastrun.onstart.supervision.peers import Peers
from vastrun.onstart.supervision.restart_decision import agree_on_restart
from vastrun.onstart.supervision.restarts import MAX_STARTS_WITHOUT_PROGRESS, Start, next_start
from vastrun.onstart.supervision.watch import add_peer_observations

NODES = 3
IN_VAIN: tuple[Reason, ...] = ("signal", "hang", "communication")


@pytest.fixture
def sides() -> Iterator[list[Peers]]:
    with meeting(NODES) as all_of_them:
        yield all_of_them


def training(**changes: Any) -> Job:
    train = {"steps": 100, "batch": 12}
    job: Job = read_as(
        Job, job_of(**{"train": train, "command": None, "success": None, "nodes": NODES, **changes})
    )
    return job


def ended(
    reason: Reason = "signal", *, checkpoint: int | None = None, micro_batch: int | None = None
) -> StartRecord:
    return StartRecord(
        reason=reason,
        detail="",
        world_size=6,
        micro_batch=micro_batch,
        checkpoint=checkpoint,
        started_at=1.0,
        ended_at=2.0,
    )


def all_decide(
    sides: list[Peers],
    *histories: list[StartRecord],
    job: Job | None = None,
    last: Start = Start(world_size=2),  # noqa: B008
) -> list[Start | str]:
    """What the supervisor of each node takes to follow."""
    return at_once(
        lambda peers, history: agree_on_restart(job or training(), history, last, peers), sides, histories
    )


def test_all_do_what_the_first_node_says_which_alone_has_the_checkpoints(sides: list[Peers]) -> None:
    saved = [ended("oom", checkpoint=10 * number, micro_batch=4) for number in range(1, 5)]
    elsewhere = [ended("oom") for _ in saved]
    decided = all_decide(sides, saved, elsewhere, elsewhere)
    assert decided == [Start(number=1, world_size=2, micro_batch=2)] * NODES


@pytest.mark.parametrize(("gpus", "chosen"), [(2, ("GPU-a", "GPU-b")), (0, ())])
def test_gpus_are_chosen_only_for_a_job_that_has_some(
    gpus: int, chosen: tuple[str, ...], sides: list[Peers], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 0, GPU-a\necho 1, GPU-b\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    decided = all_decide(sides, *[[ended(checkpoint=5)]] * NODES, job=training(gpus=gpus))
    assert decided == [Start(number=1, world_size=2, gpus=chosen)] * NODES


def test_where_the_nodes_see_different_reasons_the_first_one_s_counts(sides: list[Peers]) -> None:
    decided = all_decide(sides, [ended("signal", checkpoint=5)], [ended("disk")], [ended("communication")])
    assert decided == [Start(number=1, world_size=2)] * NODES


@pytest.mark.parametrize(
    ("history", "job", "why"),
    [
        ([ended("error")], {}, "the same error would recur"),
        ([ended("hang", checkpoint=5)], {"restarts": {"signal": 1}}, "restarts allows 0 by hang"),
        (
            [ended(checkpoint=5), *(ended(reason, checkpoint=5) for reason in IN_VAIN)],
            {},
            f"{MAX_STARTS_WITHOUT_PROGRESS} starts in a row saved no new checkpoint",
        ),
    ],
)
def test_none_starts_again_where_one_machine_would_not(
    history: list[StartRecord], job: dict[str, Any], why: str, sides: list[Peers]
) -> None:
    decided = all_decide(sides, history, history, history, job=training(**job))
    assert decided == [why] * NODES


def test_none_starts_again_once_a_node_is_gone(sides: list[Peers]) -> None:
    sides[2].__exit__()
    decided = all_decide(sides[:2], [ended()], [ended()])
    assert decided == ["node 2 can no longer be reached"] * 2


def test_none_starts_again_once_the_first_node_is_gone(sides: list[Peers]) -> None:
    sides[0].__exit__()
    decided = all_decide(sides[1:], [ended()], [ended()])
    assert all(isinstance(one, str) and "0" in one for one in decided), decided


def test_each_start_is_heard_of_by_itself(sides: list[Peers], tmp_path: Path) -> None:
    """What was said of the start before does not end the next one, and is no answer to it."""
    (tmp_path / "run/raw").mkdir(parents=True)
    at_once(
        add_peer_observations, [tmp_path] * NODES, [observed(peers, -9, at=2.0) for peers in sides], sides
    )
    all_decide(sides, [ended(checkpoint=5)], [ended()], [ended()])
    sides[1].begin(1)
    sides[0].listen()
    assert sides[0].ended
    assert sides[0].failing, "of the same start as before"
    for peers in (sides[0], sides[2]):
        peers.begin(1)
    for peers in sides:
        peers.listen()
    assert not any(peers.failing or peers.stalled for peers in sides)
    second = at_once(
        add_peer_observations, [tmp_path] * NODES, [observed(peers, 0, at=3.0) for peers in sides], sides
    )
    assert [len(each.elsewhere) for each in second] == [NODES - 1] * NODES
    assert not any(dated.failed for each in second for dated in each.elsewhere)


def test_ranks_are_as_many_on_each_node_as_the_gpus_of_the_poorest_carry() -> None:
    job = training(ranks=4, gpus=4)
    found = next_start(
        job, [ended("device", checkpoint=5)], Start(world_size=4), ("GPU-0", "GPU-1", "GPU-2"), (4, 2)
    )
    assert isinstance(found, Start)
    assert (found.world_size, found.gpus) == (2, ("GPU-0", "GPU-1"))


def test_a_number_of_ranks_that_does_not_divide_the_batch_over_all_nodes_is_not_taken() -> None:
    job = training(ranks=4, gpus=4)  # of 12, 3 nodes of 3 ranks could not have equal shares
    found = next_start(job, [ended("device", checkpoint=5)], Start(world_size=4), None, (4, 3))
    assert isinstance(found, Start)
    assert found.world_size == 2


def test_where_a_node_has_no_gpu_left_the_nodes_are_named() -> None:
    job = training(ranks=4, gpus=4)
    found = next_start(job, [ended("device", checkpoint=5)], Start(world_size=4), None, (4, 0))
    assert found == "too few GPUs respond for this job's 4 ranks on each node: 0"


@pytest.mark.parametrize(("nodes", "where"), [(1, ""), (2, " on each node"), (3, " on each node")])
def test_each_node_is_named_only_where_a_job_has_several(nodes: int, where: str) -> None:
    job = training(ranks=4, gpus=4, nodes=nodes)
    found = next_start(job, [ended("device", checkpoint=5)], Start(world_size=4), ())
    assert found == f"too few GPUs respond for this job's 4 ranks{where}: 0"
