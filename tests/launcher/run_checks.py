"""Drive a run to its end through every fault, and check what it left."""

import pytest

from tests.launcher.faults import Killed
from tests.launcher.world import World
from vastrun.contract import layout
from vastrun.launcher.core import Phase, Run, bills
from vastrun.launcher.core.errors import HeldError, StorageError


def drive_to_the_end(world: World) -> Run | None:
    """As a patient user would: launch, and resume whatever was interrupted. None: no row was ever written."""
    try:
        run = world.launch()
    except (Killed, StorageError, HeldError):
        pass
    else:
        if run.phase is Phase.ENDED:
            return run
    for _ in range(12):
        if not world.ledger.runs():
            return None
        world.user_requests.at = {}  # who left comes back
        try:
            run = world.resume()
        except (Killed, StorageError, HeldError):
            continue
        if run.phase is Phase.ENDED:
            return run
    return world.run()


def check_nothing_leaked_and_nothing_lied(world: World, run: Run | None) -> None:
    story = [f"{event.phase}: {event.text}" for event in world.screen.events]
    assert world.rented() == 0, story
    assert world.market.most_at_once <= 1, story
    assert not world.market.ended_by_schedule, "a schedule ended a machine that was needed"
    if run is None:
        return
    assert run.phase is Phase.ENDED, story
    if run.cause is None:
        assert all(proof.holds for proof in run.proofs), run.proofs
        assert run.proofs, story
        assert layout.OUTCOME in world.output_store.home, story
        assert world.output_store.log.endswith("the end\n"), story
    else:
        assert run.detail, story
    cost = bills.cost_usd(run, world.clock.now())
    assert cost == pytest.approx(world.market.bill_usd, rel=0.05, abs=0.2), story
