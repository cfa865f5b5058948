"""The network of a run with several nodes: its machines are on it, and it goes after them."""

from pathlib import Path

import pytest

from tests.hostile.texts import INTERFACES
from tests.launcher.faults import Fault
from tests.launcher.node_checks import check_nothing_leaked, networked
from tests.launcher.node_world import RUN_ID
from vastrun.contract import layout
from vastrun.launcher.commands.reap import leftover_networks
from vastrun.launcher.core import Cause, Phase


def test_nodes_share_a_network_that_is_removed_after_the_last_machine(tmp_path: Path) -> None:
    world, market = networked(tmp_path, nodes=3)
    places: list[bytes] = []
    world.at(15.0, lambda: places.extend(box.files[layout.NODE_ENV] for box in market.boxes))

    run = world.launch()

    assert run.cause is None, world.told
    assert {row.offer.network for row in world.rows() if row.offer} == {"b"}
    assert len(places) == 3 and all(b"VASTRUN_RENDEZVOUS=10.5.0.1:29400\n" in place for place in places)
    assert (market.networks, market.left_with) == ({}, 0)
    check_nothing_leaked(world)


@pytest.mark.parametrize("node", [0, 1])
def test_a_node_that_is_not_on_the_network_is_given_back_with_all_before_anybody_trains(
    node: int, tmp_path: Path
) -> None:
    world, market = networked(tmp_path)
    market.interfaces[node] = INTERFACES["another network"]

    world.launch()

    first = world.ledger.get(RUN_ID)
    assert (first.cause, first.failed_node) == (Cause.HOST, node), world.told
    assert "no interface on 10.5.0.0/24" in first.detail
    assert {row.phase for row in world.rows()} == {Phase.ENDED}
    assert not any(event.text.startswith("training: ") for event in world.ledger.events(RUN_ID))
    assert market.networks == {}
    check_nothing_leaked(world)


def test_a_network_that_stays_is_told_and_keeps_no_run_open(tmp_path: Path) -> None:
    world, market = networked(tmp_path)
    trouble = Fault(verb="networks.remove_network", nth=1, moment="before", trouble="error", times=99)
    world.expect(trouble)
    run = world.launch()
    assert (run.phase, run.cause) == (Phase.ENDED, None), world.told
    assert "the run's network could not be removed: HTTP 500; `vastrun reap` removes it" in world.told
    assert [network.label for network in leftover_networks(world.ledger, market)] == [run.label]
