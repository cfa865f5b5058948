"""What the nodes conclude together: one first cause, one stuck rank, whoever saw it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.trainer.supervision.launches import job_of
from tests.waiting import LONGEST_S
from trainer.contract.job import Job
from trainer.contract.outcome import Hang, StartRecord
from trainer.contract.records import read_as
from trainer.distributed.nodes import ThisNode
from trainer.supervision.diagnosis import Watched, diagnose
from trainer.supervision.peers import Peers
from trainer.supervision.rank_process import RankProcess
from trainer.supervision.restarts import NoRestart, Start, next_start
from trainer.supervision.stacks import StackFrame
from trainer.supervision.stall import RankProgress
from trainer.supervision.watch import joint

BROKEN = 'Traceback (most recent call last):\n  File "a.py", line 1\nRuntimeError: [gloo/pair.cc] closed\n'
IN_A_COLLECTIVE = StackFrame(
    file="/site-packages/torch/distributed/distributed_c10d.py", line="1", function="all_reduce"
)
ASLEEP = StackFrame(file="/box/code/train.py", line="7", function="wait")


@pytest.fixture
def sides() -> Iterator[list[Peers]]:
    """Two nodes that have met."""
    with socket.create_server(("", 0)) as probe:
        port = probe.getsockname()[1] - 1
    with ExitStack() as stack, ThreadPoolExecutor() as threads:
        nodes = [ThisNode(node=node, nodes=2, host="127.0.0.1", port=port) for node in (0, 1)]
        sides = [stack.enter_context(Peers(this_node=this_node, run_id="calm-heron")) for this_node in nodes]
        list(threads.map(lambda peers: peers.meet(within_s=LONGEST_S, given_up=lambda: False), sides))
        yield sides


def watched(peers: Peers, exit_code: int, at: float) -> Watched:
    """A node whose only rank left so."""
    process = RankProcess(rank=peers.this_node.node, pid=1, started_at=1.0, exit_code=exit_code, ended_at=at)
    return Watched(
        started_at=1.0,
        world_size=2,
        training=False,
        processes=(process,),
        agent=None,
        agent_exit=1,
        this_node=peers.this_node,
    )


def together(sides: list[Peers], boxes: list[Path], seen: list[Watched]) -> list[Watched]:
    with ThreadPoolExecutor() as threads:
        return list(threads.map(joint, boxes, seen, sides))


@pytest.fixture
def boxes(tmp_path: Path) -> list[Path]:
    folders = [tmp_path / "0", tmp_path / "1"]
    for folder in folders:
        (folder / "run" / "raw").mkdir(parents=True)
    return folders


def test_a_rank_whose_connection_broke_is_not_the_cause_though_it_ended_first(
    sides: list[Peers], boxes: list[Path]
) -> None:
    (boxes[0] / "run" / "raw" / "rank-0.log").write_text(BROKEN)
    seen = together(sides, boxes, [watched(sides[0], 1, at=10.0), watched(sides[1], -9, at=11.0)])
    for box, each in zip(boxes, seen, strict=True):
        account = diagnose(box, each)
        assert (account.reason, account.detail) == ("signal", "rank 1 was killed by SIGKILL")
        assert [end.rank for end in account.ranks] == [0, 1]


def test_the_stuck_rank_is_the_one_that_waits_for_nobody_on_whichever_node(
    sides: list[Peers], boxes: list[Path]
) -> None:
    for peers, frame in zip(sides, (IN_A_COLLECTIVE, ASLEEP), strict=True):
        rank = peers.this_node.node
        culprit = RankProgress(rank=rank, step=5, activity="data", still_s=9.0, frames=(frame,))
        hang = Hang(rank=rank, step=5, activity="data", stalled_s=9.0, frame=frame.function, stacks=())
        peers.tell(stalled=True, culprit=culprit, hang=hang)
    seen = together(sides, boxes, [watched(peers, -9, at=10.0) for peers in sides])
    for box, each in zip(boxes, seen, strict=True):
        account = diagnose(box, each)
        assert (account.reason, each.hang and each.hang.rank) == ("hang", 1)
        assert account.detail == "rank 1 made no progress for 9 s at step 5 (data), in wait"


def test_a_node_that_is_gone_is_the_cause_of_what_broke_on_the_others(
    sides: list[Peers], boxes: list[Path]
) -> None:
    (boxes[0] / "run" / "raw" / "rank-0.log").write_text(BROKEN)
    sides[1].__exit__()
    seen = joint(boxes[0], watched(sides[0], 1, at=10.0), sides[0])
    account = diagnose(boxes[0], seen)
    assert (account.reason, account.detail) == ("communication", "node 1 can no longer be reached")


def test_a_stop_on_one_node_is_a_stop_on_all(sides: list[Peers], boxes: list[Path]) -> None:
    sides[1].tell(stop_cause="time_limit", stopped_at=9.0)
    stopped = replace(watched(sides[1], -15, at=9.5), stop_cause="time_limit", stopped_at=9.0)
    seen = together(sides, boxes, [watched(sides[0], -15, at=10.0), stopped])
    assert [diagnose(box, each).reason for box, each in zip(boxes, seen, strict=True)] == ["stopped"] * 2


def test_ranks_on_several_nodes_are_not_started_again_on_the_spot() -> None:
    job: Job = read_as(Job, job_of(train={"steps": 9, "batch": 2}, command=None, success=None, nodes=2))
    history = [
        StartRecord(reason="signal", detail="", world_size=2, checkpoint=5, started_at=1.0, ended_at=2.0)
    ]
    assert next_start(job, history, Start(world_size=1), None) == NoRestart(
        why="its ranks are on several nodes"
    )
