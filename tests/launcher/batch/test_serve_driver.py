"""Serving: runs and batches whose laptops died go on at another computer, and nobody is driven twice."""

from pathlib import Path

import pytest

from tests.fakebox import Training
from tests.launcher.batch.virtual_time import Killed
from tests.launcher.batch.world import NAME, BatchWorld
from vastrun.launcher.core import Driver, Phase
from vastrun.launcher.core.errors import UsageError

LAPTOP, SERVER = "laptop~1", "server~2"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BatchWorld:
    monkeypatch.chdir(tmp_path)
    world = BatchWorld(tmp_path)
    world.computer = LAPTOP
    return world


def dies_after(world: BatchWorld, seconds: float, run_id: str = "") -> None:
    """The laptop drives a run, or its batch, and dies; from then on things happen at the server."""
    world.time.kill_at = world.time.now() + seconds
    with pytest.raises(Killed):
        world.launch(run_id) if run_id else world.drive()
    world.time.kill_at = float("inf")
    world.computer = SERVER


def test_a_batch_of_a_dead_laptop_goes_on_at_another_computer_below_its_own_folder(
    world: BatchWorld, tmp_path: Path
) -> None:
    world.submit(6, usd=20.0, parallel=2)
    dies_after(world, 15.0)

    notes = world.serve(for_s=600.0)

    assert world.verdicts() == {"SUCCEEDED": 6}
    assert (world.market.rented, max(world.market.labels.values())) == (0, 1)
    batch = world.ledger.batches.get(NAME)
    assert (batch.computer, batch.folder) == (SERVER, str(tmp_path / "batches" / NAME))
    assert all(run.out_dir.startswith(batch.folder) for run in world.ledger.runs())
    assert notes[0] == f"driving batch {NAME}"
    assert f"batch {NAME} is taken over from laptop: outputs are downloaded to {batch.folder}" in notes
    assert notes[-1] == f"batch {NAME} has nothing left to do"


@pytest.mark.parametrize("dies_after_s", [0.5, 3.0, 8.0, 20.0])
def test_a_run_of_a_dead_laptop_goes_on_at_another_computer(
    world: BatchWorld, tmp_path: Path, dies_after_s: float
) -> None:
    dies_after(world, dies_after_s, "calm-heron-3f1a")
    notes = world.serve(for_s=600.0)
    run = world.ledger.get("calm-heron-3f1a")
    assert (run.phase, str(run.verdict), world.market.rented) == (Phase.ENDED, "SUCCEEDED", 0)
    assert (run.computer, run.out_dir) == (SERVER, str(tmp_path / "runs" / run.id))
    told = [event.text for event in world.ledger.events(run.id)]
    assert f"taken over from laptop: its outputs are downloaded to {run.out_dir} on server" in told
    assert list(notes) == [f"driving {run.id}", f"{run.id} ended: SUCCEEDED"]


def test_what_somebody_drives_is_left_to_him(world: BatchWorld) -> None:
    dies_after(world, 8.0, "calm-heron-3f1a")
    world.ledger.hold("calm-heron-3f1a", Driver(who="desk:9:9", until=world.time.now() + 1e6))
    assert list(world.serve(for_s=120.0)) == []
    assert world.market.rented == 1


def test_a_machine_that_only_its_own_computer_reaches_is_left_to_it(world: BatchWorld) -> None:
    world.market.shared = False
    dies_after(world, 8.0, "calm-heron-3f1a")
    assert list(world.serve(for_s=120.0)) == []
    with pytest.raises(UsageError, match="calm-heron-3f1a was started on laptop") as caught:
        world.resume("calm-heron-3f1a")
    assert caught.value.hint == "there: vastrun resume calm-heron-3f1a"
    assert (world.market.rented, world.ledger.get("calm-heron-3f1a").computer) == (1, LAPTOP)
    world.computer = LAPTOP
    assert world.serve(for_s=600.0)[-1] == "calm-heron-3f1a ended: SUCCEEDED"


def test_who_leaves_a_server_leaves_its_runs_to_train(world: BatchWorld) -> None:
    world.market.usual = Training(seconds=300.0)
    dies_after(world, 8.0, "calm-heron-3f1a")
    notes = world.serve(for_s=20.0)
    assert world.ledger.get("calm-heron-3f1a").phase is Phase.TRAIN
    assert notes[-1] == "calm-heron-3f1a continues in phase train without this launcher"
    assert world.serve(for_s=600.0)[-1] == "calm-heron-3f1a ended: SUCCEEDED"
