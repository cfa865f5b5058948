"""What is shown of a run that another launcher drives."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.launcher.world import World
from vastrun.launcher.commands.takeover import follow
from vastrun.launcher.core import Phase, Progress

HALFWAY = Progress(step=40, steps=100, left_s=30.0)


@pytest.mark.parametrize(("phase", "shown"), [(Phase.TRAIN, HALFWAY), (Phase.DESTROY, Progress())])
def test_what_is_left_of_a_training_is_told_as_long_as_it_trains(
    tmp_path: Path, phase: Phase, shown: Progress
) -> None:
    world = World(tmp_path)
    standing = {"phase": phase, "step": 40, "steps": 100, "steps_per_s": 2.0}
    run = replace(world.begin(), id="bold-otter-1b46", out_dir=str(tmp_path), **standing)
    world.ledger.add(run)

    follow(run, world.services())

    assert world.screen.shown[-1] == (phase, shown)
