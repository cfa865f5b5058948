"""What follows on a start of the ranks of several nodes: the same on all of them."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.onstart.supervision.concluding import started, training
from tests.onstart.supervision.meeting import at_once, meeting, observed
from vastrun.contract.outcome import Reason, StartRecord
from vastrun.onstart.supervision.peers import Peers
from vastrun.onstart.supervision.restart_decision import agree_on_restart
from vastrun.onstart.supervision.restarts import MAX_STARTS_WITHOUT_PROGRESS, Start
from vastrun.onstart.supervision.watch import add_peer_observations

NODES = 3
IN_VAIN: tuple[Reason, ...] = ("signal", "hang", "communication")


@pytest.fixture
def sides() -> Iterator[list[Peers]]:
    with meeting(NODES) as all_of_them:
        yield all_of_them


def all_decide(sides: list[Peers], *histories: list[StartRecord], **job: Any) -> list[Start | str]:
    """What the supervisor of each node takes to follow on the first start of a job with these options."""
    made, last = training(nodes=NODES, **job), Start(world_size=2)
    return at_once(lambda peers, history: agree_on_restart(made, history, last, peers), sides, histories)


def test_all_do_what_the_first_node_says_which_alone_has_the_checkpoints(sides: list[Peers]) -> None:
    saved = [started("oom", checkpoint=10 * number, micro_batch=4) for number in range(1, 5)]
    elsewhere = [started("oom") for _ in saved]
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
    decided = all_decide(sides, *[[started(checkpoint=5)]] * NODES, gpus=gpus)
    assert decided == [Start(number=1, world_size=2, gpus=chosen)] * NODES


def test_where_the_nodes_see_different_reasons_the_first_one_s_counts(sides: list[Peers]) -> None:
    decided = all_decide(sides, [started(checkpoint=5)], [started("disk")], [started("communication")])
    assert decided == [Start(number=1, world_size=2)] * NODES


@pytest.mark.parametrize(
    ("history", "job", "why"),
    [
        ([started("error")], {}, "the same error would recur"),
        ([started("hang", checkpoint=5)], {"restarts": {"signal": 1}}, "restarts allows 0 by hang"),
        (
            [started(checkpoint=5), *(started(reason, checkpoint=5) for reason in IN_VAIN)],
            {},
            f"{MAX_STARTS_WITHOUT_PROGRESS} starts in a row saved no new checkpoint",
        ),
    ],
)
def test_none_starts_again_where_one_machine_would_not(
    history: list[StartRecord], job: dict[str, Any], why: str, sides: list[Peers]
) -> None:
    decided = all_decide(sides, history, history, history, **job)
    assert decided == [why] * NODES


def test_none_starts_again_once_a_node_is_gone(sides: list[Peers]) -> None:
    sides[2].__exit__()
    decided = all_decide(sides[:2], [started()], [started()])
    assert decided == ["node 2 can no longer be reached"] * 2


def test_none_starts_again_once_the_first_node_is_gone(sides: list[Peers]) -> None:
    sides[0].__exit__()
    decided = all_decide(sides[1:], [started()], [started()])
    assert all(isinstance(one, str) and "0" in one for one in decided), decided


def test_each_start_is_heard_of_by_itself(sides: list[Peers], tmp_path: Path) -> None:
    """What was said of the start before does not end the next one, and is no answer to it."""
    (tmp_path / "run/raw").mkdir(parents=True)
    at_once(
        add_peer_observations, [tmp_path] * NODES, [observed(peers, -9, at=2.0) for peers in sides], sides
    )
    all_decide(sides, [started(checkpoint=5)], [started()], [started()])
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
