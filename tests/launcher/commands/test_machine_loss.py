"""A rehearsed program that leaves no snapshot is killed after a limited time, and the reason is given."""

from pathlib import Path

from tests.fakes import FakeClock
from vastrun.launcher.commands.machine_loss import SNAPSHOT_S, MachineLoss


def test_a_program_without_a_snapshot_is_killed_in_the_end_and_its_obstacle_named(tmp_path: Path) -> None:
    clock = FakeClock()
    loss = MachineLoss(box=tmp_path, now=clock.now, to_end=False)
    loss.begin()
    assert not loss.should_kill("12.3 supervisor snapshot: waits, code/a.bin is open for writing\n")
    clock.sleep(SNAPSHOT_S + 1)
    assert loss.should_kill("12.4 rank0 step 5\n")
    result = loss.result()
    assert result.answer == "no_snapshot"
    assert result.detail == "no checkpoint within 300 s: waits, code/a.bin is open for writing"


def test_a_program_that_writes_nothing_is_said_to(tmp_path: Path) -> None:
    clock = FakeClock()
    loss = MachineLoss(box=tmp_path, now=clock.now, to_end=False)
    loss.begin()
    clock.sleep(SNAPSHOT_S + 1)
    assert loss.should_kill("")
    assert loss.result().detail.endswith("the program wrote no file")
