"""What holds after every run with several nodes, and the market whose machines share a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launcher.core import Phase
from tests.launcher.gang_world import GangWorld, NetworkedMarket


def check_nothing_leaked(world: GangWorld) -> None:
    assert world.market.rented == 0, world.told
    assert all(run.phase is Phase.ENDED for run in world.every_row()), world.told
    assert world.market.too_early == 0, "a node trained while another had nothing"
    assert world.usd == pytest.approx(world.market.bill_usd, rel=0.05, abs=0.1), world.told


def networked(tmp_path: Path, **job: Any) -> tuple[GangWorld, NetworkedMarket]:
    """A market whose machines share a network only where it was made for their run."""
    world = GangWorld(tmp_path, market=NetworkedMarket, **job)
    assert isinstance(world.market, NetworkedMarket)
    return world, world.market
