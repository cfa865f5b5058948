"""Nodes that train apart: the others go on without one that left, and no machine is rented in its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakebox import Training
from tests.jobs import train_job
from tests.launcher.faults import Fault, Moment
from tests.launcher.node_checks import TROUBLES, check_nothing_leaked, drive_to_the_end, rows_of
from tests.launcher.node_world import RUN_ID, ApartMarket, NodeMarket, NodeWorld
from tests.slow import slow
from vastrun.contract.config import DilocoConfig
from vastrun.launcher.core import Cause, Phase, UserRequest

NODES = 3
LOST_AT_S = 10.0


def world_of(tmp_path: Path, min_nodes: int = 1, **job: Any) -> NodeWorld:
    train = train_job(steps=100).train
    assert train is not None
    apart = replace(train, strategy="diloco", diloco=DilocoConfig(min_nodes=min_nodes))
    world = NodeWorld(tmp_path, nodes=NODES, market=ApartMarket, train=apart, **job)
    world.market.training = Training(seconds=150.0, steps=100)
    return world


def losing(world: NodeWorld, node: int = 1, at_s: float = LOST_AT_S) -> NodeWorld:
    world.at(at_s, lambda: world.market.lose(node))
    return world


def check_one_machine_a_node(world: NodeWorld) -> None:
    check_nothing_leaked(world)
    assert world.market.rentals == NODES, world.told


@pytest.mark.parametrize(
    ("leave", "cause"),
    [
        (lambda market: market.lose(1), Cause.LOST),
        (lambda market: market.fail(1, "signal"), Cause.SIGNAL),
        (lambda market: market.fail(1, "error"), Cause.USER_ERROR),
    ],
    ids=["lost", "killed", "failed"],
)
def test_the_others_train_to_the_end_whatever_made_a_node_leave(
    leave: Callable[[NodeMarket], None], cause: Cause, tmp_path: Path
) -> None:
    world = world_of(tmp_path)
    world.at(LOST_AT_S, lambda: leave(world.market))

    world.launch()

    assert [row.cause for row in world.rows()] == [None, cause, None], world.told
    assert f"the others continued without node 1: {cause}" in world.told
    left, stayed = world.rows()[1:]
    assert (left.released_at or 0.0) < (stayed.released_at or 0.0) - 60.0, "its machine is given back at once"
    check_one_machine_a_node(world)


@pytest.mark.parametrize("request_", [UserRequest.STOP, UserRequest.DESTROY])
def test_a_run_that_a_node_has_left_can_be_stopped(request_: UserRequest, tmp_path: Path) -> None:
    world = losing(world_of(tmp_path))
    world.at(40.0, lambda: world.ledger.ask(RUN_ID, request_))

    run = world.launch()

    assert run.cause is Cause.STOPPED, world.told
    check_one_machine_a_node(world)


def test_all_end_with_node_0_even_after_another_one_left(tmp_path: Path) -> None:
    world = losing(losing(world_of(tmp_path)), node=0, at_s=60.0)

    world.launch()

    run = world.ledger.get(RUN_ID)
    assert (run.cause, run.failed_node) == (Cause.LOST, 0), world.told
    assert "all nodes ended with node 0, which hosts their rendezvous" in world.told
    check_one_machine_a_node(world)


def test_all_end_once_a_second_node_leaves_too_few(tmp_path: Path) -> None:
    world = losing(losing(world_of(tmp_path, min_nodes=2)), node=2, at_s=40.0)

    world.launch()

    run = world.ledger.get(RUN_ID)
    assert (run.phase, run.cause) == (Phase.ENDED, Cause.LOST), world.told
    assert run.failed_node in (1, 2)
    assert "all nodes ended with node 0" not in world.told
    check_one_machine_a_node(world)


def test_a_node_that_left_while_no_launcher_attended_the_run_is_closed_by_the_next(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.user_requests.at = {world.time.now() + 15.0: UserRequest.DETACH}
    world.launch()
    world.user_requests.at = {}
    losing(world, at_s=5.0)

    run = world.resume()

    assert run.cause is None, world.told
    assert world.rows()[1].cause is Cause.LOST
    check_one_machine_a_node(world)


BEGINNING = (
    "provider.search",
    "provider.rent",
    "provider.connect",
    "remote.put",
    "ledger.add",
    "packer.pack",
)
"""Verbs that begin a run: none follows while nodes train, since no machine is rented."""
ROWS = rows_of({verb: some for verb, some in TROUBLES.items() if verb not in BEGINNING})
QUICK = [
    row for row in ROWS if row[1:] == ("after", "killed") and row[0] in ("ledger.save", "provider.destroy")
]


@pytest.mark.parametrize(
    ("verb", "moment", "trouble", "calls"),
    [*((*row, (1,)) for row in QUICK), *slow(*((*row, (1, 2)) for row in ROWS))],
    ids=lambda value: str(value).replace(" ", "_"),
)
def test_one_fault_after_a_node_was_lost_leaves_no_machine_and_no_false_verdict(
    verb: str, moment: Moment, trouble: str, calls: tuple[int, ...], tmp_path: Path
) -> None:
    struck = 0
    for nth in calls:
        world = losing(world_of(tmp_path))

        def expect(world: NodeWorld = world, nth: int = nth) -> None:
            world.plan.calls.clear()
            world.expect(Fault(verb=verb, nth=nth, moment=moment, trouble=trouble))

        world.at(LOST_AT_S, expect)
        run = drive_to_the_end(world)

        check_one_machine_a_node(world)
        struck += len(world.plan.struck)
        if trouble == "killed":
            assert run.cause is None, f"#{nth}: {run.cause} {run.detail}\n{world.told}"
        elif run.cause is not None:
            assert run.detail, world.told
    assert struck, "no fault of this row ever struck: the row tests nothing"
