"""Runs with several nodes: all or nothing, one verdict, and whatever happens nothing stays rented."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakebox import FakeBox, Loading
from tests.hostile.texts import PLACES
from tests.launcher.node_checks import check_nothing_leaked
from tests.launcher.node_world import RUN_ID, DeafMarket, Life, NodeMarket, NodeWorld
from tests.slow import slow
from vastrun.contract import layout
from vastrun.launcher.commands.takeover import follow
from vastrun.launcher.core import NOTHING, Cause, Driver, Instance, Phase, UserRequest, bills
from vastrun.launcher.core.batch import Budget
from vastrun.launcher.core.errors import BudgetError, EndedError
from vastrun.launcher.core.phases import BEFORE_TRAINING
from vastrun.launcher.flow.run_state import NodeGroup

GONE_S = 60.0
"""So long after a node was lost the others may live."""


@pytest.fixture
def world(tmp_path: Path) -> NodeWorld:
    return NodeWorld(tmp_path)


def test_a_runs_machines_are_rented_in_order_train_together_and_end_in_one_verdict(tmp_path: Path) -> None:
    world = NodeWorld(tmp_path, nodes=3)

    run = world.launch()

    assert run.cause is None, world.told
    assert [label.partition(".")[0] for label in world.market.order] == [
        "vastrun-calm-heron-3f1a",
        "vastrun-calm-heron-3f1a-n1",
        "vastrun-calm-heron-3f1a-n2",
    ]
    assert [(row.node, row.leader) for row in world.rows()] == [(0, ""), (1, RUN_ID), (2, RUN_ID)]
    assert world.ledger.runs() == [run], "a list shows one row a run"
    assert [row.out_dir for row in world.rows()[1:]] == [f"{run.out_dir}/node-1", f"{run.out_dir}/node-2"]
    check_nothing_leaked(world)


def test_the_dollars_and_the_price_that_are_shown_are_those_of_all_machines(world: NodeWorld) -> None:
    watched: list[tuple[float, float]] = []

    def follow_it() -> None:
        world.user_requests.at = {world.time.now(): UserRequest.DETACH}
        services = world.attempts("desk:9:0", Life()).services_for("fake", NOTHING)
        follow(world.ledger.get(RUN_ID), services)
        watched.append(world.screen.dollars[-1])
        world.user_requests.at = {}

    world.at(10.0, follow_it)
    run = world.launch()

    price = 2 * run.usd_per_hour
    assert world.screen.dollars[-1][1] == pytest.approx(price)
    assert world.screen.dollars[-1][0] == pytest.approx(world.usd, rel=0.05)
    assert watched[0][1] == pytest.approx(price)
    own = bills.cost_usd(run, world.time.now())
    assert [event.usd > 1.5 * own for event in world.screen.events[-1:]] == [True]


def test_each_box_is_told_which_node_it_is_and_where_the_nodes_meet(world: NodeWorld) -> None:
    seen: dict[int, str] = {}

    def look() -> None:
        for node in (0, 1):
            seen[node] = world.market.box_of(node).files[layout.NODE_ENV].decode()

    world.at(10.0, look)
    world.launch()

    place = "VASTRUN_RENDEZVOUS=10.0.0.1:29400\nVASTRUN_LINK_MBPS=1000\n"
    assert seen == {node: f"VASTRUN_NODE={node}\n{place}" for node in (0, 1)}


@pytest.mark.parametrize("said", PLACES.values(), ids=PLACES)
def test_a_place_that_is_none_is_told_to_no_box(said: str, tmp_path: Path) -> None:
    class Liar(NodeMarket):
        def machine(self, instance_id: str) -> Instance | None:
            found = super().machine(instance_id)
            return found and replace(found, rendezvous=said)

    world = NodeWorld(tmp_path, market=Liar)
    told: list[bytes] = []
    world.at(15.0, lambda: told.extend(box.files.get(layout.NODE_ENV, b"") for box in world.market.boxes))

    run = world.launch()

    assert run.cause is Cause.PROVIDER, world.told
    assert not any(told)
    check_nothing_leaked(world)


def test_half_of_the_nodes_and_no_offer_for_the_rest_gives_all_back_within_seconds(tmp_path: Path) -> None:
    world = NodeWorld(tmp_path, nodes=3)
    world.market.stock = 2
    began = world.time.now()

    run = world.launch()

    assert run.cause is Cause.NO_OFFER
    assert run.detail.startswith("node 2: "), run.detail
    assert run.failed_node == 2
    assert world.time.now() - began < 10
    assert 0 < world.usd < 0.05
    check_nothing_leaked(world)


def test_no_row_is_written_where_a_budget_has_room_for_one_node_only(world: NodeWorld) -> None:
    world.budgets = (Budget(name="month", usd=2.0),)
    with pytest.raises(BudgetError):
        world.launch()
    assert world.every_row() == []
    assert world.market.order == []


def test_each_node_may_cost_its_share_of_the_money(world: NodeWorld) -> None:
    world.launch()
    assert [row.reserved_usd for row in world.rows()] == [1.5, 1.5]


@pytest.mark.parametrize("node", [0, 1])
@pytest.mark.parametrize("phase", [Phase.BOOT, Phase.SHIP, Phase.TRAIN, Phase.COLLECT])
def test_one_lost_node_ends_the_others_within_a_minute_and_the_verdict_names_it(
    phase: Phase, node: int, world: NodeWorld
) -> None:
    lost_at: list[float] = []

    def lose(of: int) -> None:
        if of == node and not lost_at:
            lost_at.append(world.time.now())
            world.market.lose(node)

    if phase is Phase.BOOT:
        world.market.loading = {f"host-{n}": Loading(seconds=20.0) for n in range(1, 8)}
    if phase in (Phase.BOOT, Phase.TRAIN):
        world.at(10.0, lambda: lose(node))
    else:
        world.happens_in[phase] = lose

    last = world.launch()

    run = world.ledger.get(RUN_ID)
    assert run.phase is Phase.ENDED
    assert run.cause is (Cause.OUTPUTS_LOST if phase is Phase.COLLECT else Cause.LOST), world.told
    assert run.detail.startswith(f"node {node}: "), run.detail
    assert run.failed_node == node
    assert run.failed_in is world.rows()[node].failed_in is not None
    ends = [row.released_at or 0.0 for row in world.rows()]
    assert max(ends) - lost_at[0] < GONE_S, world.told
    assert (last.cause is None) == (phase in BEFORE_TRAINING), "other machines are taken, as for one node"
    check_nothing_leaked(world)


def test_node_whose_supervisor_did_not_hear_of_a_loss_is_stopped_by_its_launcher_once(tmp_path: Path) -> None:
    world = NodeWorld(tmp_path, market=DeafMarket)
    world.at(10.0, lambda: world.market.lose(1))
    world.launch()
    stopping = "stopping: another node of the run has failed"
    assert world.told.count(stopping) == 1, world.told


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("at_s", [10.0, 2.0], ids=["while they train", "while they boot"])
def test_of_two_nodes_that_are_lost_the_first_one_is_named(first: int, at_s: float, world: NodeWorld) -> None:
    world.market.loading = {f"host-{n}": Loading(seconds=6.0 if at_s < 6 else 0.0) for n in (1, 2)}
    world.at(at_s, lambda: world.market.lose(first))
    world.at(at_s + 1.5, lambda: world.market.lose(1 - first))

    world.launch()

    run = world.ledger.get(RUN_ID)
    assert run.cause is Cause.LOST, world.told
    assert (run.failed_node, run.detail.partition(":")[0]) == (first, f"node {first}"), world.told
    assert [row.failed_node for row in world.rows()] == [first, first]
    check_nothing_leaked(world)


@pytest.mark.parametrize("node", [0, 1])
def test_a_node_that_is_lost_as_the_last_one_is_shipped_is_named(node: int, world: NodeWorld) -> None:
    world.happens_in[Phase.SHIP] = lambda of: world.market.lose(node) if of == 1 else None
    world.launch()
    run = world.ledger.get(RUN_ID)
    assert (run.cause, run.failed_node) == (Cause.LOST, node), world.told
    check_nothing_leaked(world)


@pytest.mark.parametrize("node", [0, 1])
def test_a_rank_that_fails_is_named_with_its_node_and_the_launch_is_tried_again_as_a_whole(
    node: int, tmp_path: Path
) -> None:
    world = NodeWorld(tmp_path, retry={"signal": 1})
    world.at(10.0, lambda: world.market.fail(node, "signal"))

    run = world.launch()

    first = world.ledger.get(RUN_ID)
    assert (first.cause, first.failed_node) == (Cause.SIGNAL, node)
    assert first.detail == f"node {node}: rank {2 * node} failed"
    assert run.parent == RUN_ID
    assert run.cause is None, world.told
    assert [row.node for row in world.rows(run.id)] == [0, 1]
    assert [row.parent for row in world.rows(run.id)] == [RUN_ID, None], "a retry is one run"
    check_nothing_leaked(world)


def test_another_attempt_has_what_all_nodes_left_of_the_money(tmp_path: Path) -> None:
    world = NodeWorld(tmp_path, retry={"signal": 1})
    world.at(10.0, lambda: world.market.fail(1, "signal"))
    run = world.launch()
    before = sum(bills.cost_usd(row, world.time.now()) for row in world.rows())
    assert sum(row.reserved_usd for row in world.rows(run.id)) == pytest.approx(3.0 - before, abs=0.01)


@pytest.mark.parametrize("request_", [UserRequest.STOP, UserRequest.DESTROY])
def test_what_is_asked_of_a_run_is_of_all_its_nodes(request_: UserRequest, world: NodeWorld) -> None:
    world.at(8.0, lambda: world.ledger.ask(RUN_ID, request_))
    run = world.launch()
    assert run.cause is Cause.STOPPED, world.told
    assert "node" not in run.detail
    check_nothing_leaked(world)


@pytest.mark.parametrize(("loads_s", "phase"), [(60.0, Phase.BOOT), (0.0, Phase.TRAIN)])
def test_who_leaves_leaves_all_nodes_as_they_are(loads_s: float, phase: Phase, world: NodeWorld) -> None:
    world.market.loading = {"host-2": Loading(seconds=loads_s)}
    world.user_requests.at = {world.time.now() + 10.0: UserRequest.DETACH}
    world.launch()
    assert [row.phase for row in world.rows()] == [Phase.TRAIN, phase], world.told
    world.user_requests.at = {}
    run = world.resume()
    assert run.cause is None, world.told
    check_nothing_leaked(world)


def test_the_other_rows_are_read_again_after_a_while_or_when_asked(world: NodeWorld) -> None:
    run = world.launch()
    now = [100.0]
    group = NodeGroup(run, world.spec, world.ledger, lambda: now[0])
    (former,) = group.other_rows()
    changed = replace(former, step=former.step + 1)
    world.ledger.hold(former.id, Driver(who="desk:1:0", until=world.time.now() + 60))
    world.ledger.save(changed, who="desk:1:0")

    assert group.other_rows() == [former], "the ledger may be on another computer"
    assert group.other_rows(fresh=True) == [changed]
    world.ledger.save(former, who="desk:1:0")
    now[0] += 3600
    assert group.other_rows() == [former]


def test_the_end_of_another_node_is_seen_at_once_when_asked(world: NodeWorld) -> None:
    run = world.launch()
    group = NodeGroup(run, world.spec, world.ledger, lambda: 100.0)
    assert group.end() is None
    (former,) = group.other_rows()
    world.ledger.hold(former.id, Driver(who="desk:1:0", until=world.time.now() + 60))
    world.ledger.save(replace(former, cause=Cause.DISK, detail="the disk is full"), who="desk:1:0")

    assert group.end() is None, "the rows were just read"
    end = group.end(fresh=True)
    assert end is not None
    assert (end.cause, end.detail, end.node) == (Cause.DISK, "the disk is full", former.node)


@pytest.mark.parametrize(
    ("comes_after_s", "cause"),
    [
        (30.0, Cause.LOST),
        *slow((300.0, Cause.LOST)),
        (900.0, Cause.HOST),
        *slow((-60.0, Cause.COMMUNICATION)),
    ],
    ids=["soon", "after minutes", "too late", "it answers again"],
)
@pytest.mark.parametrize("node", [0, *slow((1,))])
def test_what_became_of_a_silent_node_is_its_providers_word(
    node: int, comes_after_s: float, cause: Cause, tmp_path: Path
) -> None:
    world = NodeWorld(tmp_path, retry={"lost": 1}, restarts={})
    world.at(10.0, lambda: world.market.silent.add(node))
    if comes_after_s > 0:
        world.at(10.0 + comes_after_s, lambda: world.market.lose(node))
    else:
        world.at(10.0 - comes_after_s, world.market.silent.clear)

    last = world.launch()

    run = world.ledger.get(RUN_ID)
    assert run.cause is cause, world.told
    assert f"waiting for the provider's word about node {node}" in world.told
    if cause is not Cause.COMMUNICATION:
        assert run.detail.startswith(f"node {node}: "), run.detail
    assert (last.id != RUN_ID) == (cause is Cause.LOST), "retry: {lost: 1}"
    world.market.silent.clear()
    check_nothing_leaked(world)


def test_what_the_launcher_destroyed_is_nobody_elses_act(tmp_path: Path) -> None:
    class Job(NodeMarket):
        is_cancelled = False

        def destroy(self, instance_id: str) -> None:
            super().destroy(instance_id)
            self.is_cancelled = True

        def box(self, instance_id: str) -> FakeBox:
            if self.is_cancelled:
                raise EndedError("it was cancelled, but not by this launcher", cause=Cause.LOST)
            return super().box(instance_id)

    world = NodeWorld(tmp_path, market=Job)
    world.at(10.0, lambda: world.market.fail(0, "communication"))
    world.happens_in[Phase.COLLECT] = lambda node: world.time.sleep(30.0 * node)

    run = world.launch()

    assert run.cause is Cause.COMMUNICATION, world.told
    assert all(row.cause is Cause.COMMUNICATION for row in world.rows())
    assert "not by this launcher" not in world.told
    check_nothing_leaked(world)
