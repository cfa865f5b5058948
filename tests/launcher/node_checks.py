"""What may go wrong in a run with several nodes, how it is driven to its end, and what holds then."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.launcher.faults import Killed, Moment
from tests.launcher.node_world import RUN_ID, NetworkedMarket, NodeWorld
from vastrun.launcher.core import Phase, Run
from vastrun.launcher.core.errors import HeldError, StorageError, UsageError

TROUBLES: Mapping[str, tuple[str, ...]] = {
    "provider.search": ("error", "denied"),
    "provider.rent": ("error", "uncertain", "unreachable", "busy", "killed"),
    "provider.instances": ("error", "unreachable", "killed"),
    "provider.connect": ("unreachable", "gone", "killed"),
    "provider.destroy": ("error", "unreachable", "killed"),
    "remote.run": ("error", "unreachable", "killed"),
    "remote.put": ("error", "unreachable", "killed"),
    "remote.write": ("error", "killed"),
    "output_store.collect": ("no space", "bug", "killed"),
    "ledger.save": ("no space", "killed"),
    "ledger.hold": ("no space", "killed"),
    "ledger.add": ("no space", "killed"),
    "packer.pack": ("no space", "bug"),
}
"""By verb; the faults of one machine alone are in the matrix of `test_fault_matrix.py`."""


def rows_of(troubles: Mapping[str, tuple[str, ...]]) -> list[tuple[str, Moment, str]]:
    """Each verb with each of its troubles, before and after its effect."""
    moments: tuple[Moment, ...] = ("before", "after")
    return [
        (verb, moment, trouble) for verb, some in troubles.items() for moment in moments for trouble in some
    ]


def drive_to_the_end(world: NodeWorld) -> Run:
    """As a patient user would: launch, and resume whatever was interrupted."""
    drive = world.launch
    for _ in range(12):
        try:
            run = drive()
        except (Killed, StorageError, HeldError):
            drive = world.resume
            continue
        except UsageError:  # it has ended, and nothing follows
            break
        if run.phase is Phase.ENDED:
            return run
    return world.ledger.get(RUN_ID)


def check_nothing_leaked(world: NodeWorld) -> None:
    assert world.market.rented == 0, world.told
    assert all(run.phase is Phase.ENDED for run in world.every_row()), world.told
    assert world.market.too_early == 0, "a node trained while another had nothing"
    assert world.usd == pytest.approx(world.market.bill_usd, rel=0.05, abs=0.1), world.told


def networked(tmp_path: Path, **job: Any) -> tuple[NodeWorld, NetworkedMarket]:
    """A market whose machines share a network only where it was made for their run."""
    world = NodeWorld(tmp_path, market=NetworkedMarket, **job)
    assert isinstance(world.market, NetworkedMarket)
    return world, world.market
