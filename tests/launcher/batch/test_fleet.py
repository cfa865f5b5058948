"""A batch that holds machines: points follow each other there, within one budget, and none stays rented."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.core import Cause, Phase, Run, UserRequest, Verdict
from launcher.core.slots import POOL
from tests.launcher.batch.world import NAME, SHARE_USD, BatchWorld


@pytest.fixture
def world(tmp_path: Path) -> BatchWorld:
    return BatchWorld(tmp_path)


def story(world: BatchWorld) -> list[str]:
    """How each run ended."""
    return [
        f"{run.id} {run.provider} {run.point} {run.phase} {run.cause}: {run.detail}"
        for run in world.ledger.runs()
    ]


def test_points_follow_each_other_on_machines_that_the_batch_holds(world: BatchWorld) -> None:
    world.submit(8, usd=20.0, parallel=2, reuse="auto")
    world.drive()
    assert world.verdicts() == {"SUCCEEDED": 8}, story(world)
    assert (world.market.rentals, world.market.rented) == (2, 0), story(world)
    assert [run.provider for state in world.states() for run in state.runs] == [POOL] * 8
    machines = world.machines()
    assert [(run.phase, run.cause) for run in machines] == [(Phase.ENDED, Cause.STOPPED)] * 2
