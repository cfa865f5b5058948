"""A provider of whose machines little or nothing can be read: they are destroyed all the same."""

from __future__ import annotations

import math
from pathlib import Path

from launcher.core import Phase
from tests.launcher.world import RUN_ID, World


def test_a_machine_of_which_nothing_can_be_read_is_destroyed_by_its_id(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.market.mute_from = world.clock.now() + 15

    run = world.launch()

    assert world.rented() == 0
    assert (run.phase, run.released_at) == (Phase.DESTROY, None)
    world.market.mute_from = math.inf
    assert world.resume().cause is None


def test_values_that_make_no_sense_are_told_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.market.unreadable = ("ports", "uptime_mins")

    world.launch()

    told = [event.text for event in world.ledger.events(RUN_ID) if "make no sense" in event.text]
    assert [text.rpartition(": ")[2] for text in told] == ["ports, uptime_mins"]
