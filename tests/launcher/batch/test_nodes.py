"""Batches whose points train on several machines each."""

from pathlib import Path

import pytest

from tests.jobs import train_job
from tests.launcher.batch.world import NAME, SHARE_USD, BatchWorld


@pytest.fixture
def world(tmp_path: Path) -> BatchWorld:
    world = BatchWorld(tmp_path)
    world.market.max_nodes = 2
    world.market.usd_per_hour = 1.0
    return world


def test_each_point_has_all_of_its_machines_and_the_budget_counts_them(world: BatchWorld) -> None:
    world.submit(3, job=train_job(nodes=2), usd=2.0, parallel=2, reuse="auto")

    world.drive()

    assert world.verdicts() == {"SUCCEEDED": 3}
    assert [len(state.runs) for state in world.states()] == [1, 1, 1], "a further node is no attempt"
    assert world.machines() == [], "and no machine that is held"
    rows = world.ledger.runs(batch=NAME, members=True)
    assert sorted(row.node for row in rows) == [0, 0, 0, 1, 1, 1]
    assert world.ledger.batches.held_usd(NAME) == pytest.approx(world.market.bill_usd, rel=0.05)
    assert world.market.rented == 0


def test_a_point_starts_only_where_the_budget_has_room_for_all_of_its_machines(world: BatchWorld) -> None:
    world.submit(4, job=train_job(nodes=2), usd=SHARE_USD * 2.5, parallel=4)
    most = 0

    def look() -> None:
        nonlocal most
        most = max(most, world.market.rented)
        world.at(1.0, look)

    world.at(1.0, look)
    world.drive()

    assert most == 4, "two points of two machines; the share of a point is of both"
