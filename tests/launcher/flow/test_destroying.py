"""Failed tries to destroy a machine, the waits after them, and machines that cannot be read."""

import math
from pathlib import Path

import pytest

from tests.launcher.faults import Fault
from tests.launcher.world import RUN_ID, World
from vastrun.launcher.core import Cause, Phase


@pytest.mark.parametrize(
    ("failures", "phase", "tries", "waits_s", "within_s"),
    [
        (0, Phase.ENDED, 0, 0.0, 0.5),
        (1, Phase.ENDED, 1, 2.0, 0.5),
        (3, Phase.ENDED, 3, 2.0 + 4 + 8, 0.5),
        (99, Phase.DESTROY, 10, 2.0 + 4 + 8 + 16 + 32 + 5 * 60, 3.0),
    ],
)
def test_only_a_destroy_that_failed_is_a_try_and_after_ten_over_six_minutes_it_is_reported(
    failures: int, phase: Phase, tries: int, waits_s: float, within_s: float, tmp_path: Path
) -> None:
    calm, world = World(tmp_path / "calm"), World(tmp_path / "failing")
    calm.launch()
    world.expect(Fault(verb="provider.destroy", nth=1, moment="before", trouble="error", times=failures))
    run = world.launch()
    assert (run.phase, run.destroy_tries) == (phase, tries)
    assert world.plan.calls["provider.destroy"] == tries + (phase is Phase.ENDED)
    assert world.clock.now() - calm.clock.now() == pytest.approx(waits_s, abs=within_s)


def test_the_traffic_that_is_charged_is_that_of_the_machines_own_row_before_the_destroy(world: World) -> None:
    world.market.down_gb, world.market.own_row_down_gb = 1.0, 7.0
    assert world.launch().meter.down_gb == 7.0


def test_a_failure_before_the_destroy_is_no_try_of_it(world: World) -> None:
    world.expect(Fault(verb="remote.put", nth=1, moment="before", trouble="error"))
    run = world.launch()
    assert (run.cause, run.destroy_tries) == (Cause.PROVIDER, 0)


def test_a_machine_of_which_nothing_can_be_read_is_destroyed_by_its_id(world: World) -> None:
    world.market.mute_from = world.clock.now() + 15
    run = world.launch()
    assert world.rented() == 0
    assert (run.phase, run.released_at) == (Phase.DESTROY, None)
    world.market.mute_from = math.inf
    assert world.resume().cause is None


def test_values_that_make_no_sense_are_told_once(world: World) -> None:
    world.market.unreadable = ("ports", "uptime_mins")
    world.launch()
    told = [event.text for event in world.ledger.events(RUN_ID) if "make no sense" in event.text]
    assert [text.rpartition(": ")[2] for text in told] == ["ports, uptime_mins"]
