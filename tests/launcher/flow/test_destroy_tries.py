"""What counts as a failed try to destroy a machine, and how long a launcher waits after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.core import Cause, Phase
from tests.launcher.faults import Fault
from tests.launcher.world import World


@pytest.mark.parametrize("failures", [0, 1, 3])
def test_only_a_destroy_that_failed_counts_as_a_try_and_is_waited_after(
    failures: int, tmp_path: Path
) -> None:
    (tmp_path / "calm").mkdir()
    (tmp_path / "failing").mkdir()
    calm, world = World(tmp_path / "calm"), World(tmp_path / "failing")
    calm.launch()
    world.expect(
        Fault(verb="provider.destroy", nth=1, moment="before", trouble="error", times=failures),
    )
    run = world.launch()
    assert (run.phase, run.destroy_tries) == (Phase.ENDED, failures)
    pauses = sum(2.0**number for number in range(1, failures + 1))
    assert world.clock.now() - calm.clock.now() == pytest.approx(pauses, abs=0.5)


def test_a_failure_before_the_destroy_is_no_try_of_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.expect(Fault(verb="remote.put", nth=1, moment="before", trouble="error"))
    run = world.launch()
    assert (run.cause, run.destroy_tries) == (Cause.PROVIDER, 0)


def test_a_machine_is_destroyed_ten_times_over_six_minutes_and_then_reported(tmp_path: Path) -> None:
    (tmp_path / "calm").mkdir()
    (tmp_path / "failing").mkdir()
    calm, world = World(tmp_path / "calm"), World(tmp_path / "failing")
    calm.launch()
    world.expect(Fault(verb="provider.destroy", nth=1, moment="before", trouble="error", times=99))
    run = world.launch()
    assert (run.phase, run.destroy_tries, world.plan.calls["provider.destroy"]) == (Phase.DESTROY, 10, 10)
    assert world.clock.now() - calm.clock.now() == pytest.approx(2 + 4 + 8 + 16 + 32 + 5 * 60, abs=3.0)
