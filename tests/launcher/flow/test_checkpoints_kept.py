"""A machine lost at any call while it trains: no downloaded checkpoint is lost, and none lies there by half.

Further rows of the fault matrix, with real folders of outputs.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakebox import Training
from tests.jobs import command_job
from tests.launcher.faults import Fault
from tests.launcher.run_checks import drive_to_the_end
from tests.launcher.world import World
from vastrun.contract.checkpoint_folder import verify
from vastrun.contract.outcome import Check, Outcome
from vastrun.launcher.core import Cause, Run
from vastrun.launcher.core.job import Checkpoints, Success
from vastrun.launcher.outputs.store import FolderStore

TROUBLES: Mapping[str, tuple[str, ...]] = {
    "remote.run": ("vanish", "unreachable", "killed"),
    "remote.read": ("vanish", "unreachable", "killed"),
    "output_store.download_log": ("vanish", "killed", "no space"),
    "output_store.download_checkpoint": ("vanish", "unreachable", "killed", "no space"),
    "output_store.collect": ("vanish", "killed", "no space"),
    "provider.connect": ("vanish", "killed"),
    "ledger.add_event": ("killed",),
}
ROWS = [
    (verb, moment, trouble)
    for verb, troubles in TROUBLES.items()
    for trouble in troubles
    for moment in ("before", "after")
]
INDEXED_PATHS = re.compile(r"checkpoint step-(\d+) downloaded")


def proven(outcome: Outcome) -> Outcome:
    """As the supervisor writes it for a command that did what `success` asks for."""
    return replace(outcome, final_record=False, checks=(Check(name="steps", holds=True, text="step 20"),))


def world_of_a_command(folder: Path) -> World:
    """A run of a user's own program that saves a checkpoint every few seconds."""
    job = command_job(checkpoints=Checkpoints(files="checkpoints/*"), success=Success(steps=20))
    training = Training(seconds=40.0, steps=20, kind="command", outcome=proven)
    world = World(folder, training=training, spec=job)
    world.output_store = FolderStore()
    world.out_dir = str(folder / "out")
    return world


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, int]:
    """How often each verb is called until such a run has ended, when nothing goes wrong."""
    world = world_of_a_command(tmp_path_factory.mktemp("calls"))
    run = world.launch()
    assert run.cause is None, run.detail
    assert len(told(world)) >= 2
    assert kept(world) == [16, 20]
    return dict(world.plan.calls)


@pytest.mark.parametrize(("verb", "moment", "trouble"), ROWS)
@pytest.mark.sampled(3)
def test_a_trouble_in_the_middle_of_a_training_loses_and_halves_no_checkpoint(
    verb: str, moment: str, trouble: str, calls: Mapping[str, int], tmp_path: Path
) -> None:
    assert strike(verb, max(1, calls[verb] // 2), moment, trouble, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "moment", "trouble"), ROWS)
def test_a_trouble_at_other_calls_of_a_training_loses_and_halves_no_checkpoint(
    verb: str, moment: str, trouble: str, calls: Mapping[str, int], tmp_path: Path
) -> None:
    # Every call of the verbs that are called seldom, and of the others some thirty, the last ones among them.
    for nth in range(calls[verb], 0, -max(1, calls[verb] // 30)):
        strike(verb, nth, moment, trouble, tmp_path / str(nth))


def strike(verb: str, nth: int, moment: str, trouble: str, folder: Path) -> bool:
    """Drive a run with that trouble and check its checkpoints. Return whether it struck."""
    world = world_of_a_command(folder)
    world.expect(Fault(verb=verb, nth=nth, moment=moment, trouble=trouble))  # type: ignore[arg-type]

    run = drive_to_the_end(world)

    assert world.rented() == 0
    check_checkpoints(world, run)
    return bool(world.plan.struck)


def check_checkpoints(world: World, run: Run | None) -> None:
    steps = kept(world)
    newest = max(told(world), default=0)
    assert max(steps, default=0) >= newest, "a checkpoint that was downloaded is gone"
    if run is not None and run.cause is Cause.LOST and newest:
        assert (world.ledger.get(run.id).out_dir, bool(steps)) == (world.out_dir, True)


def told(world: World) -> list[int]:
    """The steps of the checkpoints that the launcher says are downloaded."""
    return [int(found[1]) for event in world.screen.events if (found := INDEXED_PATHS.search(event.text))]


def kept(world: World) -> list[int]:
    """The steps of the checkpoints in the outputs, each checked by its manifest and its content."""
    folder = Path(world.out_dir) / "checkpoints"
    manifests = folder.glob("step-*/manifest.json")
    steps = sorted(int(path.parent.name.removeprefix("step-")) for path in manifests)
    for step in steps:
        checkpoint = folder / f"step-{step:06}"
        assert verify(checkpoint).step == step
        assert (checkpoint / "state.pt").read_text() == f"weights after step {step}"
    latest = folder / "latest.json"
    if latest.is_file():
        assert json.loads(latest.read_text())["step"] in steps
    return steps
