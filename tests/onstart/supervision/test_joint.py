"""What the nodes conclude together: one first cause, one stuck rank, whoever saw it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.onstart.supervision.concluding import raised
from tests.onstart.supervision.meeting import at_once, meeting, observed
from tests.waiting import LONGEST_S, eventually
from vastrun.contract.outcome import Hang
from vastrun.onstart.supervision.diagnosis import ObservedLaunch, diagnose
from vastrun.onstart.supervision.peers import Peers
from vastrun.onstart.supervision.progress import RankProgress
from vastrun.onstart.supervision.stacks import StackFrame
from vastrun.onstart.supervision.watch import add_peer_observations

BROKEN = ("RuntimeError: [gloo/pair.cc] closed", "RuntimeError")
IN_A_COLLECTIVE = StackFrame(
    file="/site-packages/torch/distributed/distributed_c10d.py", line="1", function="all_reduce"
)
ASLEEP = StackFrame(file="/box/code/train.py", line="7", function="wait")


@pytest.fixture
def sides() -> Iterator[list[Peers]]:
    """Two nodes that have met."""
    with meeting(2) as both:
        yield both


def together(sides: list[Peers], boxes: list[Path], seen: list[ObservedLaunch]) -> list[ObservedLaunch]:
    return at_once(add_peer_observations, boxes, seen, sides)


@pytest.fixture
def boxes(tmp_path: Path) -> list[Path]:
    folders = [tmp_path / "0", tmp_path / "1"]
    for folder in folders:
        (folder / "run" / "raw").mkdir(parents=True)
    return folders


def accounts(boxes: list[Path], seen: list[ObservedLaunch]) -> list[tuple[str, str, list[int]]]:
    """What each node concludes: the reason, its line, and the ranks that have an end."""
    found = map(diagnose, boxes, seen)
    return [(account.reason, account.detail, [end.rank for end in account.ranks]) for account in found]


def reasons(boxes: list[Path], seen: list[ObservedLaunch]) -> list[str]:
    return [reason for reason, _, _ in accounts(boxes, seen)]


def test_a_rank_whose_connection_broke_is_not_the_cause_though_it_ended_first(
    sides: list[Peers], boxes: list[Path]
) -> None:
    raised(boxes[0], 0, *BROKEN)
    seen = together(sides, boxes, [observed(sides[0], 1, at=10.0), observed(sides[1], -9, at=11.0)])
    assert accounts(boxes, seen) == [("signal", "rank 1 was killed by SIGKILL", [0, 1])] * 2


def test_the_stuck_rank_waits_for_nobody_on_whichever_node(sides: list[Peers], boxes: list[Path]) -> None:
    for peers, frame in zip(sides, (IN_A_COLLECTIVE, ASLEEP), strict=True):
        rank = peers.this_node.node
        culprit = RankProgress(rank=rank, step=5, activity="data", still_s=9.0, frames=(frame,))
        hang = Hang(rank=rank, step=5, activity="data", stalled_s=9.0, frame=frame.function, stacks=())
        peers.publish(stalled=True, culprit=culprit, hang=hang)
    seen = together(sides, boxes, [observed(peers, -9, at=10.0) for peers in sides])
    assert [each.hang and each.hang.rank for each in seen] == [1, 1]
    why = "rank 1 made no progress for 9 s at step 5 (data), in wait"
    assert accounts(boxes, seen) == [("hang", why, [0, 1])] * 2


@pytest.mark.parametrize(
    ("exit_code", "changes", "error"),
    [(1, {}, BROKEN), (-9, {"killed": frozenset({0})}, None), (0, {"processes": (), "agent_exit": -9}, None)],
    ids=["connection broken", "killed", "not begun"],
)
def test_a_lost_node_is_the_cause_of_how_the_ranks_ended_elsewhere(
    sides: list[Peers],
    boxes: list[Path],
    exit_code: int,
    changes: dict[str, Any],
    error: tuple[str, ...] | None,
) -> None:
    if error:
        raised(boxes[0], 0, *error)
    sides[1].__exit__()
    ended = replace(observed(sides[0], exit_code, at=10.0), **changes)
    account = diagnose(boxes[0], add_peer_observations(boxes[0], ended, sides[0]))
    assert (account.reason, account.detail) == ("communication", "node 1 can no longer be reached")
    assert (account.first_failure is None) is (error is None)


def test_a_node_whose_ranks_had_not_begun_when_another_failed_is_not_lost(
    sides: list[Peers], boxes: list[Path]
) -> None:
    unbegun = replace(observed(sides[1], 0, at=10.0), processes=(), agent_exit=-9)
    seen = together(sides, boxes, [observed(sides[0], -9, at=10.0), unbegun])
    assert [each.lost for each in seen] == [(), ()]
    assert accounts(boxes, seen) == [("signal", "rank 0 was killed by SIGKILL", [0, 1])] * 2


def test_a_stop_on_one_node_is_a_stop_on_all(sides: list[Peers], boxes: list[Path]) -> None:
    sides[1].publish(stop_cause="time_limit", stopped_at=9.0)
    stopped = replace(observed(sides[1], -15, at=9.5), stop_cause="time_limit", stopped_at=9.0)
    seen = together(sides, boxes, [observed(sides[0], -15, at=10.0), stopped])
    assert reasons(boxes, seen) == ["stopped"] * 2


@pytest.mark.parametrize("ahead_s", [(0.0, 100.0), (100.0, 0.0), (-3.0, 3.0)])
@pytest.mark.parametrize("first", [0, 1])
def test_of_two_ranks_that_fail_by_themselves_the_earlier_one_is_named_whatever_the_clocks_say(
    ahead_s: tuple[float, float], first: int, boxes: list[Path]
) -> None:
    with meeting(2, ahead_s=ahead_s) as sides:
        ended_at = [peers.clock() - (2.0 if node == first else 1.0) for node, peers in enumerate(sides)]
        ends = [observed(peers, -9, at=at) for peers, at in zip(sides, ended_at, strict=True)]
        seen = together(sides, boxes, ends)
    for box, each in zip(boxes, seen, strict=True):
        account = diagnose(box, each)
        assert account.first_failure is not None
        assert account.first_failure.rank == first, account.detail


def test_a_rank_that_failed_before_another_nodes_stop_failed_by_itself(boxes: list[Path]) -> None:
    with meeting(2, ahead_s=(0.0, 100.0)) as sides:
        asked_at = sides[1].clock() - 1.0
        sides[1].publish(stop_cause="time_limit", stopped_at=asked_at)
        stopped = replace(observed(sides[1], -15, at=asked_at), stop_cause="time_limit", stopped_at=asked_at)
        seen = together(sides, boxes, [observed(sides[0], -9, at=sides[0].clock() - 2.0), stopped])
    assert reasons(boxes, seen) == ["signal"] * 2


@pytest.mark.parametrize("exit_code", [0, 1], ids=["finished", "failed"])
def test_a_node_waits_for_the_end_of_node_0(sides: list[Peers], boxes: list[Path], exit_code: int) -> None:
    with ThreadPoolExecutor(1) as threads:
        ended = observed(sides[1], exit_code, at=10.0)
        concluding = threads.submit(add_peer_observations, boxes[1], ended, sides[1])

        def other_has_ended() -> bool:
            sides[0].listen()
            return bool(sides[0].peer_states[1].ends)

        # Only then does the first node say that its ranks have ended, too.
        eventually(other_has_ended)
        add_peer_observations(boxes[0], observed(sides[0], 0, at=12.0), sides[0])
        seen = concluding.result(LONGEST_S)
    assert [dated.end.rank for dated in seen.elsewhere] == [0]
