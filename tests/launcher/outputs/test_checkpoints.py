"""Checkpoints that come home while the box trains: in slices, whole or not at all, the last two."""

import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes import FakeClock
from tests.jobs import train_job
from tests.launcher.outputs.training_box import ALL, Home, TrainingBox
from vastrun.contract import layout
from vastrun.contract.checkpoint_folder import verify
from vastrun.contract.records import read_as
from vastrun.launcher.core import CheckpointCopy
from vastrun.launcher.core.errors import SliceOverError, UnreachableError
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.caps import ExchangeBudget
from vastrun.launcher.outputs.checkpoints import continue_copy
from vastrun.launcher.providers.local.remote import LocalRemote
from vastrun.trainer.job.config import TrainConfig


def test_without_a_checkpoint_there_is_nothing_to_bring(home: Home) -> None:
    assert home.save() is None
    assert home.files() == {}


def test_a_checkpoint_comes_home_as_it_lies_on_the_box(home: Home, box: TrainingBox) -> None:
    box.save(20, {"state.pt": b"weights", "shards/rank-1.pt": b"more", "empty": b""})
    copy = home.save()
    assert copy == CheckpointCopy(name="step-000020", size=11, held=11)
    assert copy.is_whole
    there = {path.removeprefix(f"{layout.CHECKPOINTS}/"): content for path, content in box.files.items()}
    assert home.files() == there
    assert sorted(path.name for path in home.folder.iterdir()) == [".gitignore", ".vastrun", "checkpoints"]


def test_many_small_files_come_in_slices_of_two_seconds(home: Home, box: TrainingBox) -> None:
    files = {f"shards/{number}": b"x" * (number % 2) for number in range(100)}
    box.save(20, files)
    clock = FakeClock()
    slices = 0
    while not (copy := home.save(now=lambda: ticks(clock))) or not copy.is_whole:
        slices += 1
        assert slices < 100
    assert slices > 3
    assert len(home.files()) == len(files) + 2


def test_a_slice_brings_a_file_however_long_its_list_took_to_read(home: Home, box: TrainingBox) -> None:
    box.save(20, {"a": b"a", "b": b""})
    clock = FakeClock()
    for _ in range(2):
        with suppress(SliceOverError):  # of the list, which then is here
            home.save(now=lambda: ticks(clock, 10.0))
    copy = home.save(now=lambda: ticks(clock, 10.0))
    assert copy is not None and copy.is_whole


def ticks(clock: FakeClock, seconds: float = 0.1) -> float:
    """Each look at the clock takes a while."""
    clock.sleep(seconds)
    return clock.now()


def test_it_comes_in_slices_and_has_no_place_before_it_is_whole(home: Home, box: TrainingBox) -> None:
    content = os.urandom(1000)
    box.save(20, {"state.pt": content})
    for bytes_held in (400, 800):
        copy = home.save(limit=400)
        assert copy is not None
        assert (copy.held, copy.is_whole) == (bytes_held, False)
        assert home.files() == {}
    copy = home.save(limit=400)
    assert copy is not None and copy.is_whole
    assert home.files()["step-000020/state.pt"] == content
    slices = [size for path, size in box.asked if path.endswith("state.pt")]
    assert slices == [400, 400, 200]


def test_a_copy_that_is_whole_is_not_asked_for_again(home: Home, box: TrainingBox) -> None:
    box.save(20, {"state.pt": b"weights"})
    home.save()
    box.asked.clear()
    assert home.save() is None
    assert [path for path, _ in box.asked] == [f"{layout.CHECKPOINTS}/latest.json"]


STAGES = {"stages": ["operator", "refine", "distill"], "steps": 40}


def test_the_last_checkpoint_of_each_stage_comes_before_a_newer_one_and_stays(
    tmp_path: Path, box: TrainingBox
) -> None:
    home = Home(tmp_path / "stages", box, spec=replace(train_job(), train=read_as(TrainConfig, STAGES)))
    for step in (20, 40, 60):
        box.save(step, {"state.pt": b"%d" % step})
    copies = [home.save(), home.save()]
    assert [copy and copy.name for copy in copies] == ["step-000040", "step-000060"]
    assert home.latest() == "step-000060"
    for step in (80, 90, 100):
        box.save(step, {"state.pt": b"%d" % step})
        home.save()
    assert home.steps() == ["step-000040", "step-000080", "step-000090", "step-000100"]
    assert home.latest() == "step-000100"


def test_the_end_of_a_stage_that_comes_late_is_not_the_newest(tmp_path: Path, box: TrainingBox) -> None:
    home = Home(tmp_path / "stages", box, spec=replace(train_job(), train=read_as(TrainConfig, STAGES)))
    box.save(60, {"state.pt": b"60"})  # continued from another machine: 40 is not there
    assert [copy.name for copy in (home.save(),) if copy] == ["step-000060"]
    box.save(40, {"state.pt": b"40"})
    box.save(60, {"state.pt": b"60"})
    home.save()
    assert home.latest() == "step-000060"


def test_only_the_newest_comes_and_the_last_two_stay(home: Home, box: TrainingBox) -> None:
    for step in (20, 40, 60):
        box.save(step, {"state.pt": b"%d" % step})
    home.save()
    assert home.steps() == ["step-000060"]
    for step in (80, 100):
        box.save(step, {"state.pt": b"%d" % step})
        home.save()
    assert home.steps() == ["step-000080", "step-000100"]
    assert home.latest() == "step-000100"


def test_what_the_user_keeps_beside_them_is_no_checkpoint(home: Home, box: TrainingBox) -> None:
    kept = home.folder / "checkpoints"
    (kept / "step-best").mkdir(parents=True)
    (kept / "step-000099").write_text("a note")
    for step in (20, 40, 60):
        box.save(step, {"state.pt": b"%d" % step})
        home.save()
    assert home.steps() == ["step-000040", "step-000060", "step-best"]
    assert (kept / "step-000099").read_text() == "a note"
    assert home.latest() == "step-000060"


def test_one_that_is_under_way_is_finished_before_a_newer_one(home: Home, box: TrainingBox) -> None:
    box.save(20, {"state.pt": b"0123456789"})
    home.save(limit=5)
    box.save(40, {"state.pt": b"abcdefghij"})
    home.save(limit=5)
    assert home.latest() == "step-000020"
    home.save()
    assert home.latest() == "step-000040"


def test_one_is_usable_while_older_checkpoints_are_missing_that_nothing_names(
    home: Home, box: TrainingBox
) -> None:
    box.save(20, {"state.pt": b"before"})
    home.save()
    head = b'{"made_by": {}, "at": 1700000000.5, "is_calm": true, "older": 2, "step": 40'
    box.save(40, {"state.json": head, "files/40.pt": b"new", "files/30.pt": b"old", "files/20.pt": b"older"})
    assert home.save(limit=len(head)) == CheckpointCopy(
        name="step-000040", size=len(head) + 11, held=len(head), taken_at=1700000000.5
    )
    assert home.latest() == "step-000020"
    copy = home.save(limit=4)
    assert copy is not None and copy.is_usable and not copy.is_whole
    assert home.latest() == "step-000040"
    usable = verify(home.folder / "checkpoints/step-000040")
    assert [file.path for file in usable.files] == ["state.json", "files/40.pt"]
    copy = home.save()
    assert copy is not None and copy.is_whole and not copy.is_usable
    assert len(verify(home.folder / "checkpoints/step-000040").files) == 4
    assert home.steps() == ["step-000020", "step-000040"]


@pytest.mark.parametrize("older", [3, 9, 10**5, 10**9])
def test_a_box_that_calls_all_files_older_delays_none(older: int, home: Home, box: TrainingBox) -> None:
    head = b'{"at": 9e9, "at": 1, "is_calm": true, "older": %d, "step": 40' % older
    box.save(40, {"state.json": head, "files/40.pt": b"new", "files/30.pt": b"old"})
    for _ in range(2):
        copy = home.save()
    assert copy is None or copy.is_whole
    assert len(verify(home.folder / "checkpoints/step-000040").files) == 3


def test_one_that_the_box_removed_meanwhile_is_finished_all_the_same(home: Home, box: TrainingBox) -> None:
    box.save(20, {"state.pt": b"0123456789"})
    home.save(limit=5)
    box.save(40, {"state.pt": b"abcdefghij"})
    box.drop(20)
    home.save(limit=5)
    assert home.files()["step-000020/state.pt"] == b"0123456789"
    assert not [path for path in box.files if path.startswith("outbox")]


def test_a_real_box_holds_what_is_under_way_by_links_and_lets_go_of_it(tmp_path: Path) -> None:
    box = TrainingBox()
    box.save(20, {"state.pt": b"0123456789", "shards/1": b"more"})
    for path, content in box.files.items():
        (tmp_path / "box" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "box" / path).write_bytes(content)
    home = Home(tmp_path / "out", LocalRemote(tmp_path / "box", {"PATH": os.environ["PATH"]}))
    home.save(limit=5)
    shutil.rmtree(tmp_path / "box" / layout.CHECKPOINTS / "step-000020")
    home.save()
    assert home.files()["step-000020/state.pt"] == b"0123456789"
    assert home.files()["step-000020/shards/1"] == b"more"
    assert [path.name for path in (tmp_path / "box").iterdir()] == ["run"]


def test_launcher_killed_at_the_very_beginning_of_a_copy_harms_nothing(home: Home, box: TrainingBox) -> None:
    box.save(20, {"state.pt": b"weights"})
    (home.folder / ".incoming" / "step-000020").mkdir(parents=True)
    home.save()
    assert home.latest() == "step-000020"


def test_on_a_disk_without_links_it_makes_way_for_a_newer_one(home: Home, box: TrainingBox) -> None:
    box.has_links = False
    box.save(20, {"state.pt": b"0123456789"})
    home.save(limit=5)
    box.save(40, {"state.pt": b"abcdefghij"})
    box.drop(20)
    assert home.save(limit=5) is None
    home.save()
    assert home.steps() == ["step-000040"]
    assert home.files()["step-000040/state.pt"] == b"abcdefghij"


def test_a_line_that_breaks_loses_no_byte(home: Home, box: TrainingBox) -> None:
    box.save(20, {"state.pt": b"0123456789"})
    home.save(limit=5)
    box.cut = True
    with pytest.raises(UnreachableError):
        home.save(limit=5)
    box.cut = False
    box.asked.clear()
    home.save()
    assert home.files()["step-000020/state.pt"] == b"0123456789"
    assert box.asked == [("outbox/step-000020/state.pt", 5)]


def test_one_that_is_damaged_is_told_once_and_the_older_one_stays(home: Home, box: TrainingBox) -> None:
    box.save(20, {"state.pt": b"weights"})
    home.save()
    box.save(40, {"state.pt": b"weightX"}, sums={"state.pt": b"weightY"})
    copy = home.save()
    assert copy is not None
    assert copy.damaged
    assert not copy.is_whole
    assert home.save() is None
    assert home.steps() == ["step-000020"]
    assert home.latest() == "step-000020"
    box.save(60, {"state.pt": b"sound"})
    home.save()
    assert home.latest() == "step-000060"


@pytest.mark.parametrize(
    "latest",
    [b"", b"{", b"[]", b'{"path": 3}', b'{"path": "../../step-000020"}', b'{"path": "step-000020/x"}'],
)
def test_a_name_that_no_honest_box_writes_is_left_alone(latest: bytes, home: Home, box: TrainingBox) -> None:
    box.save(20, {"state.pt": b"weights"})
    box.files[f"{layout.CHECKPOINTS}/latest.json"] = latest
    assert home.save() is None
    assert home.files() == {}


@pytest.mark.parametrize("path", ["../stranger", "/tmp/vastrun-stranger", "manifest.json/stranger"])
def test_a_file_of_a_checkpoint_stays_within_it(path: str, home: Home, box: TrainingBox) -> None:
    box.save(20, {path: b"evil"})
    home.save()
    assert not [p for p in home.folder.parent.rglob("*") if p.is_file() and p.read_bytes() == b"evil"]
    assert home.files() == {}


def test_a_look_that_finds_no_checkpoint_counts_for_its_exchange_and_ends_with_a_stop(tmp_path: Path) -> None:
    class StoppedError(Exception):
        """The user asked for the end of the run."""

    def stop() -> None:
        raise StoppedError

    box, budget = TrainingBox(), ExchangeBudget(caps.EXCHANGES["checkpoint"], now=lambda: 0.0)
    box.files[f"{layout.CHECKPOINTS}/latest.json"] = b"{}"
    assert continue_copy(tmp_path, box, ALL, ALL, budget) is None
    assert budget.spent_memory == len(b"{}")
    stopped = ExchangeBudget(caps.EXCHANGES["checkpoint"], check=stop, now=lambda: 0.0)
    with pytest.raises(StoppedError):
        continue_copy(tmp_path, box, ALL, ALL, stopped)
