"""Nodes that train apart: another machine is rented for one that left, and joins the others."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakebox import Loading, Training
from tests.jobs import train_job
from tests.launcher.faults import Fault, Moment
from tests.launcher.node_checks import TROUBLES, check_nothing_leaked, drive_to_the_end, rows_of
from tests.launcher.node_world import RUN_ID, ApartMarket, NodeWorld
from tests.slow import slow
from vastrun.contract import layout
from vastrun.contract.config import DilocoConfig, TrainConfig
from vastrun.launcher.commands.queries import row_of
from vastrun.launcher.core import Cause, Phase, UserRequest
from vastrun.launcher.core.batch import Budget
from vastrun.launcher.core.job import Limits
from vastrun.launcher.ports import Abilities

NODES = 3
TRAINING = Training(seconds=150.0, steps=100)
LOST_AT_S = 10.0
SECOND = f"{RUN_ID}-n1-2"


def apart(**diloco: Any) -> TrainConfig:
    train = train_job(steps=TRAINING.steps).train
    assert train is not None
    return replace(train, strategy="diloco", diloco=DilocoConfig(**{"min_nodes": 1, **diloco}))


def world_of(
    tmp_path: Path, market: type[ApartMarket] = ApartMarket, diloco: Any = None, **job: Any
) -> NodeWorld:
    world = NodeWorld(tmp_path, nodes=NODES, market=market, train=apart(**diloco or {}), **job)
    world.market.training = TRAINING
    return world


def losing(world: NodeWorld, node: int = 1, at_s: float = LOST_AT_S) -> NodeWorld:
    world.at(at_s, lambda: world.market.lose(node))
    return world


def machines_of(world: NodeWorld) -> Counter[str]:
    """How many were rented under each label."""
    return Counter(label.partition(".")[0].removeprefix("vastrun-") for label in world.market.order)


def check_one_machine_a_node(world: NodeWorld) -> None:
    check_nothing_leaked(world)
    assert world.market.most_at_once <= NODES, "two machines of one node at once"
    assert set(machines_of(world).values()) == {1}, world.told
    for row in world.rows()[1:]:
        if row.parent is not None and row.rented_at is not None:
            former = world.ledger.get(row.parent)
            assert former.released_at is not None and former.released_at <= row.rented_at


def test_another_machine_is_rented_for_a_node_that_was_lost_and_joins_the_others(tmp_path: Path) -> None:
    world = losing(world_of(tmp_path))
    told: list[str] = []
    world.at(60.0, lambda: told.append(world.market.box_of(1).files[layout.NODE_ENV].decode()))

    run = world.launch()

    assert run.cause is None, world.told
    rows = [(row.id, row.node, row.cause, row.parent) for row in world.rows()]
    assert rows == [
        (RUN_ID, 0, None, None),
        (f"{RUN_ID}-n1", 1, Cause.LOST, None),
        (SECOND, 1, None, f"{RUN_ID}-n1"),
        (f"{RUN_ID}-n2", 2, None, None),
    ]
    assert world.rows()[2].out_dir == f"{run.out_dir}/node-1-2"
    assert told == ["VASTRUN_NODE=1\nVASTRUN_RENDEZVOUS=10.0.0.1:29400\nVASTRUN_JOINS=1\n"]
    assert "node 1 left (lost); a machine is rented in its place (1 of 2)" in world.told
    assert "the others continued without node 1: lost" in world.told
    plans = re.findall(r"plan: \[n1\] ([^;]*); expected (\$\S*), at most (\$\S*) and", world.told)
    assert [offer for offer, _, _ in plans] == [
        "3 machines, each 2 x RTX 4090 at $3.60/h",
        "2 x RTX 4090 at $3.60/h",
    ]
    assert re.fullmatch(r"\$0\.9\d*", plans[1][1]) and plans[1][1] == plans[1][2]
    assert len({row.host for row in world.rows()}) == 4, "not the host that was lost"
    check_one_machine_a_node(world)


def test_the_cost_of_a_run_is_that_of_all_its_machines_and_its_price_of_those_it_has(tmp_path: Path) -> None:
    world = losing(world_of(tmp_path))
    prices: list[float] = []
    world.at(60.0, lambda: prices.append(row_of(world.ledger, world.ledger.get(RUN_ID), 0.0).usd_per_hour))

    run = world.launch()

    row = row_of(world.ledger, run, world.time.now())
    assert [one.id for one in row.nodes] == [f"{RUN_ID}-n1", SECOND, f"{RUN_ID}-n2"]
    assert row.usd == pytest.approx(world.usd) and row.usd > 0
    assert prices == [pytest.approx(NODES * run.usd_per_hour)]
    assert [price for _, price in world.screen.dollars[-20:]] == [
        pytest.approx(NODES * run.usd_per_hour)
    ] * 20


def test_no_more_machines_come_than_the_job_allows(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    for at_s in (LOST_AT_S, 35.0, 60.0):
        losing(world, at_s=at_s)

    run = world.launch()

    assert run.cause is None, world.told
    assert machines_of(world).keys() == {RUN_ID, *(f"{RUN_ID}-n{n}" for n in ("1", "1-2", "1-3", "2"))}
    assert "no machine in place of node 1: train.diloco.replacements allows 2 in all" in world.told
    check_one_machine_a_node(world)


@pytest.mark.parametrize(
    ("diloco", "reason"),
    [({"replacements": 0}, "signal"), ({}, "error")],
    ids=["the job wants none", "the program's own error would recur"],
)
def test_the_others_go_on_and_no_machine_comes(diloco: Any, reason: str, tmp_path: Path) -> None:
    world = world_of(tmp_path, diloco=diloco)
    world.at(LOST_AT_S, lambda: world.market.fail(1, reason))

    run = world.launch()

    assert run.cause is None, world.told
    assert "no machine in place of node 1: " in world.told
    assert world.market.rentals == NODES
    check_one_machine_a_node(world)


def test_a_provider_that_gives_all_machines_at_once_gives_no_other(tmp_path: Path) -> None:
    class AtOnce(ApartMarket):
        @property
        def abilities(self) -> Abilities:
            return replace(super().abilities, replaces_nodes=False)

    world = losing(world_of(tmp_path, AtOnce))

    assert world.launch().cause is None, world.told
    assert "no machine in place of node 1: fake gives a run all of its machines at once" in world.told
    assert world.market.rentals == NODES


def test_where_there_is_no_offer_the_others_go_on(tmp_path: Path) -> None:
    world = losing(world_of(tmp_path))
    world.at(LOST_AT_S, lambda: setattr(world.market, "stock", 0))

    run = world.launch()

    assert run.cause is None, world.told
    assert world.ledger.get(SECOND).cause is Cause.NO_OFFER, world.told
    assert "the others continued without another machine of node 1: no_offer" in world.told
    check_one_machine_a_node(world)


def test_a_machine_that_does_not_come_up_is_replaced_like_one_that_was_lost(tmp_path: Path) -> None:
    world = losing(world_of(tmp_path))
    world.market.loading = {"host-4": Loading(seconds=60.0)}
    losing(world, at_s=LOST_AT_S + 20.0)

    run = world.launch()

    assert run.cause is None, world.told
    assert [row.cause for row in world.rows()] == [None, Cause.LOST, Cause.LOST, None, None], world.told
    assert world.ledger.get(SECOND).failed_in is Phase.BOOT
    check_one_machine_a_node(world)


def test_a_machine_that_is_not_ready_when_the_others_are_done_is_given_back(tmp_path: Path) -> None:
    world = losing(world_of(tmp_path))
    world.market.loading = {f"host-{n}": Loading(seconds=2000.0) for n in (4, 5, 6, 7)}

    run = world.launch()

    assert run.cause is None, world.told
    late = world.ledger.get(SECOND)
    assert (late.cause, late.detail) == (
        Cause.STOPPED,
        "the training was over before this machine joined it",
    )
    assert world.time.now() - run.created_at < TRAINING.seconds + 60.0
    check_one_machine_a_node(world)


def test_nothing_is_rented_for_the_last_seconds(tmp_path: Path) -> None:
    world = losing(world_of(tmp_path), at_s=TRAINING.seconds - 30.0)

    assert world.launch().cause is None, world.told
    assert "s are left; a machine and one minute of training need 80 s" in world.told
    assert world.market.rentals == NODES


@pytest.mark.parametrize("request_", [UserRequest.STOP, UserRequest.DESTROY])
def test_what_is_asked_of_a_run_is_of_the_new_machine_too(request_: UserRequest, tmp_path: Path) -> None:
    world = losing(world_of(tmp_path))
    world.market.loading = {"host-4": Loading(seconds=100.0)}
    world.at(40.0, lambda: world.ledger.ask(RUN_ID, request_))

    run = world.launch()

    assert run.cause is Cause.STOPPED, world.told
    assert machines_of(world)[SECOND] == 1
    check_one_machine_a_node(world)


def test_with_node_0_the_new_machine_ends_too(tmp_path: Path) -> None:
    world = losing(losing(world_of(tmp_path)), node=0, at_s=60.0)

    world.launch()

    run = world.ledger.get(RUN_ID)
    assert (run.cause, run.failed_node) == (Cause.LOST, 0), world.told
    assert "all nodes ended with node 0, which hosts their rendezvous" in world.told
    assert machines_of(world)[SECOND] == 1
    check_one_machine_a_node(world)


def test_while_another_machine_comes_up_its_node_does_not_count_among_those_that_are_needed(
    tmp_path: Path,
) -> None:
    world = losing(world_of(tmp_path, diloco={"min_nodes": 2}))
    world.market.loading = {"host-4": Loading(seconds=60.0)}
    losing(world, node=2, at_s=40.0)

    world.launch()

    run = world.ledger.get(RUN_ID)
    assert (run.phase, run.cause) == (Phase.ENDED, Cause.LOST), world.told
    assert run.failed_node in (1, 2)
    assert "all nodes ended with node 0" not in world.told
    check_one_machine_a_node(world)


def test_all_machines_of_a_node_together_cost_no_more_than_its_share(tmp_path: Path) -> None:
    world = losing(world_of(tmp_path))

    world.launch()

    former, later = (world.ledger.get(row_id) for row_id in (f"{RUN_ID}-n1", SECOND))
    share_usd = former.reserved_usd
    spent_usd = row_of(world.ledger, former, world.time.now()).usd
    assert 0 < spent_usd < share_usd
    assert later.reserved_usd == pytest.approx(share_usd - spent_usd, abs=0.001)


def test_nothing_is_rented_where_too_little_of_the_share_is_left(tmp_path: Path) -> None:
    world = losing(world_of(tmp_path, limits=Limits(hours=1.0, usd=3.0)))
    world.market.loading_usd = 0.94  # and a minute is $0.06

    assert world.launch().cause is None, world.told
    assert "of the node's share of limits.usd is left; loading a machine" in world.told
    assert world.market.rentals == NODES


def test_nothing_is_rented_where_a_budget_has_no_room_any_more(tmp_path: Path) -> None:
    world = losing(world_of(tmp_path))
    world.at(LOST_AT_S - 1.0, lambda: setattr(world, "budgets", (Budget(name="month", usd=2.2),)))

    assert world.launch().cause is None, world.told
    assert "no machine in place of node 1: month: $" in world.told
    assert world.market.rentals == NODES
    check_one_machine_a_node(world)


def test_a_run_that_was_left_alone_gets_another_machine_once_a_launcher_comes_back(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.user_requests.at = {world.time.now() + 15.0: UserRequest.DETACH}
    world.launch()
    world.user_requests.at = {}
    losing(world, at_s=5.0)

    run = world.resume()

    assert run.cause is None, world.told
    assert machines_of(world)[SECOND] == 1
    check_one_machine_a_node(world)


ROWS = rows_of(TROUBLES)
QUICK = [
    row
    for row in ROWS
    if row[1:] == ("after", "killed") and row[0] in ("ledger.add", "provider.rent", "provider.destroy")
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

        check_nothing_leaked(world)
        struck += len(world.plan.struck)
        assert all(one.released_at is not None for one in world.every_row() if one.rented_at), world.told
        if trouble != "uncertain":
            assert world.market.most_at_once <= NODES, world.told
        if trouble == "killed":
            assert run.cause is None, f"#{nth}: {run.cause} {run.detail}\n{world.told}"
            assert machines_of(world)[SECOND] == 1, world.told
            check_one_machine_a_node(world)
        elif run.cause is not None:
            assert run.detail, world.told
    assert struck, "no fault of this row ever struck: the row tests nothing"
