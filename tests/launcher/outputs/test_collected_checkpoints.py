"""A collection completes the checkpoints that were downloaded while the box trained."""

from tests.launcher.outputs.training_box import Home, TrainingBox
from vastrun.contract import layout


def test_a_collection_takes_what_is_home_and_goes_on_with_what_is_under_way(
    home: Home, box: TrainingBox
) -> None:
    box.save(20, {"state.pt": b"0123456789"})
    home.save()
    box.save(40, {"state.pt": b"abcdefghij"})
    home.save(limit=5)
    box.end()
    box.asked.clear()
    assert home.collect() == ()
    states = [(path, size) for path, size in box.asked if path.endswith("state.pt")]
    assert states == [(f"{layout.CHECKPOINTS}/step-000040/state.pt", 5)]
    assert home.files()["step-000040/state.pt"] == b"abcdefghij"
    assert not (home.folder / ".incoming").exists()


def test_after_a_collection_the_checkpoints_are_those_of_the_box(home: Home, box: TrainingBox) -> None:
    for step in (20, 40, 60, 80):
        box.save(step, {"state.pt": b"%d" % step})
        if step <= 40:
            home.save()
        else:
            box.drop(step - 40)
    box.end()
    assert home.collect() == ()
    assert home.steps() == ["step-000060", "step-000080"]
    assert home.latest() == "step-000080"


def test_a_collection_without_checkpoints_keeps_those_that_came_before(home: Home, box: TrainingBox) -> None:
    box.save(20, {"state.pt": b"20"})
    home.save()
    box.files = {layout.OUTCOME: b"{}"}
    box.end()
    assert home.collect() == ()
    assert home.steps() == ["step-000020"]


def test_the_file_that_names_the_newest_is_collected_last(home: Home, box: TrainingBox) -> None:
    box.save(20, {"state.pt": b"20"})
    box.end()
    home.collect()
    assert box.asked[-1][0] == f"{layout.CHECKPOINTS}/latest.json"


def test_a_manifest_is_collected_after_the_files_of_its_checkpoint(home: Home, box: TrainingBox) -> None:
    """A machine that is lost in between leaves none that counts."""
    box.save(20, {"state.pt": b"20", "zone": b"more"})
    box.end()
    home.collect()
    asked = [path.rpartition("step-000020/")[2] for path, _ in box.asked if "step-000020" in path]
    assert asked == ["state.pt", "zone", "manifest.json"]
