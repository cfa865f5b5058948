"""What a manifest names is downloaded, whole or not at all, whatever a box says.

A collection completes the checkpoints that were downloaded while the box trained.
"""

import json
import os
import tracemalloc
from pathlib import Path

import pytest

from tests.launcher.outputs.boxes import LINES, OUTCOME, MemoryBox, box_with, files_in
from tests.launcher.outputs.training_box import Home, TrainingBox
from vastrun.contract import layout
from vastrun.launcher.core import Evidence, Run, StepEnd
from vastrun.launcher.core.errors import UnreachableError
from vastrun.launcher.core.left_out import file_text
from vastrun.launcher.outputs.store import FolderStore


def test_everything_the_manifest_names_comes_home(run: Run) -> None:
    weights = os.urandom(3_000_000)
    box = box_with(
        {
            layout.OUTCOME: OUTCOME.to_json().encode(),
            layout.STEPS: b'{"step": "10-check-gpu", "exit_code": 0}\n',
            "run/checkpoints/step-000010/model.pt": weights,
            "run/outputs/empty": b"",
            "code/results/a.npz": b"abc",
        }
    )
    collected = FolderStore().collect(run, box)
    home = files_in(run.out_dir)
    assert home["checkpoints/step-000010/model.pt"] == weights
    assert home["outputs/results/a.npz"] == b"abc"
    assert home["outputs/empty"] == b""
    assert home["log.txt"] == LINES.encode()
    assert home["details/lease.log"] == b"armed\n"
    steps = (StepEnd(step="10-check-gpu", exit_code=0, seconds=0.0),)
    assert collected.evidence == Evidence(outcome=OUTCOME, steps=steps, exit_code=0, damaged=())
    assert collected.files == len(home)
    assert collected.bytes == sum(map(len, home.values()))


def test_a_second_collection_reads_no_checked_file_again(run: Run) -> None:
    box = box_with({"run/outputs/a": b"a" * 100})
    first = FolderStore().collect(run, box)
    box.asked.clear()
    again = FolderStore().collect(run, box)
    assert again == first
    assert (first.log_bytes_not_shown, again.log_bytes_not_shown) == (len(LINES.encode()), 0)
    assert "run/outputs/a" not in box.asked


def test_a_collection_that_was_cut_off_goes_on_where_it_was(run: Run) -> None:
    content = os.urandom(4 << 20)
    box = box_with({"run/outputs/a": content})
    box.reads_left = 3
    with pytest.raises(UnreachableError):
        FolderStore().collect(run, box)
    box.reads_left = 10**9
    assert FolderStore().collect(run, box).evidence.damaged == ()
    assert box.asked.count("run/outputs/a") == 4
    assert files_in(run.out_dir)["outputs/a"] == content


def test_a_file_damaged_on_the_way_is_asked_for_again(run: Run) -> None:
    box = box_with({"run/outputs/a": b"abc"})
    box.flips = {"run/outputs/a"}
    assert FolderStore().collect(run, box).evidence.damaged == ()
    assert files_in(run.out_dir)["outputs/a"] == b"abc"


@pytest.mark.parametrize("content", [b"abX", b"ab", b""])
def test_a_file_that_is_not_as_its_manifest_says_is_damaged_and_left_out(run: Run, content: bytes) -> None:
    box = box_with({"run/outputs/a": content, "run/outputs/b": b"b"}, manifest={"run/outputs/a": b"abc"})
    assert FolderStore().collect(run, box).evidence.damaged == ("run/outputs/a",)
    home = files_in(run.out_dir)
    assert "outputs/a" not in home
    assert not any(".incoming" in path for path in home)


@pytest.mark.parametrize(
    "path",
    [
        "/tmp/vastrun-stranger",
        "../stranger",
        "run/../../stranger",
        "run//../../stranger",
        "run",
        "",
        "a\0b",
        "x" * 300,
        "\ud800",
        "link/stranger",
    ],
)
def test_a_path_that_no_honest_box_writes_is_refused(run: Run, path: str) -> None:
    out = Path(run.out_dir)
    (out / "outputs").mkdir(parents=True)
    (out / "outputs" / "link").symlink_to(out.parent)
    box = box_with({path: b"evil", "run/outputs/a": b"abc"})
    before = set(out.parent.rglob("*"))
    assert len(FolderStore().collect(run, box).evidence.damaged) == 1
    assert files_in(run.out_dir)["outputs/a"] == b"abc"
    assert not [p for p in set(out.parent.rglob("*")) - before if p.is_file() and p.read_bytes() == b"evil"]


def test_a_path_with_a_doubled_slash_stays_inside(run: Run, tmp_path: Path) -> None:
    FolderStore().collect(run, box_with({f"run/{tmp_path}/stranger": b"evil"}))
    assert not (tmp_path / "stranger").exists()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"{", "run/manifest.json: not JSON"),
        (b"[]", "run/manifest.json: files: expected a list"),
        (b'{"files": [{"path": 1, "size": 1, "sha256": ""}]}', "path: expected the name of a file, not 1"),
        (b'{"files": [3]}', "expected an object, not 3"),
    ],
)
def test_a_manifest_that_is_unreadable_is_damaged_and_it_is_said_why(run: Run, text: bytes, why: str) -> None:
    box = box_with({})
    box.files[layout.MANIFEST] = text
    collected = FolderStore().collect(run, box)
    (damaged,) = collected.evidence.damaged or ()
    assert damaged.startswith(why)
    assert collected.evidence.exit_code == 0


def test_a_box_that_died_early_still_gives_its_logs(run: Run) -> None:
    box = MemoryBox({layout.LOG: LINES.encode(), layout.LEASE_LOG: b"run.sh died\n", layout.STATUS: b"{}"})
    collected = FolderStore().collect(run, box)
    assert collected.evidence == Evidence(outcome=None, damaged=())
    assert sorted(files_in(run.out_dir)) == ["details/lease.log", "details/status.json", "log.txt"]


def test_outputs_that_the_box_does_not_offer_are_told(run: Run) -> None:
    box = box_with({"run/outputs/a": b"abc"})
    manifest = json.loads(box.files[layout.MANIFEST])
    told = {"path": "run/outputs/model.pt", "why": "a link out of the box, to /mnt/model.pt\x1b[2J\n"}
    box.files[layout.MANIFEST] = json.dumps({**manifest, "left_out": [told], "left_out_count": 7}).encode()
    evidence = FolderStore().collect(run, box).evidence
    (file,) = evidence.left_out.files
    assert file_text(file) == "run/outputs/model.pt (a link out of the box, to /mnt/model.pt )"
    assert (evidence.left_out.count, evidence.damaged) == (7, ())


@pytest.mark.parametrize("path", ["run/checkpoints", "run/report", "run/outcome.json/x", "run/exit/x"])
def test_a_file_that_no_box_has_there_is_damaged_and_the_rest_comes_home_twice(path: str, run: Run) -> None:
    box = box_with({"run/outputs/a": b"a", path: b"evil"})
    for _ in range(2):  # as after a launcher that was killed
        collected = FolderStore().collect(run, box)
        assert len(collected.evidence.damaged) == 1
        assert repr(path) in collected.evidence.damaged[0]
        assert files_in(run.out_dir)["outputs/a"] == b"a"


class EndedError(Exception):
    """The user wants it ended."""


class EndingBox(MemoryBox):
    """A box whose user ends the exchange at the call of that number."""

    def __init__(self, files: dict[str, bytes], *, ends_at: int) -> None:
        super().__init__(files)
        self.calls, self.ends_at = 0, ends_at

    def raise_if_stopped(self) -> None:
        self.calls += 1
        if self.calls >= self.ends_at:
            raise EndedError


def test_many_empty_files_do_not_keep_the_user_waiting(run: Run) -> None:
    files = {f"run/outputs/{number}": b"" for number in range(3000)}
    box = EndingBox(box_with(files).files, ends_at=40)
    with pytest.raises(EndedError):
        FolderStore().collect(run, box)
    assert len(files_in(run.out_dir)) < 40


def test_the_user_ends_the_reading_of_a_large_file_that_is_here(run: Run) -> None:
    box = box_with({"run/outputs/large": bytes(40 << 20)})
    FolderStore().collect(run, box)
    ending = EndingBox(box.files, ends_at=10**9)
    FolderStore().collect(run, ending)
    calls = ending.calls
    assert calls >= 3
    with pytest.raises(EndedError):
        FolderStore().collect(run, EndingBox(box.files, ends_at=calls))


def test_no_file_is_in_memory_as_a_whole(run: Run) -> None:
    box = box_with({layout.METRICS: bytes(40 << 20)}, manifest={})
    tracemalloc.start()
    try:
        FolderStore().collect(run, box)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert files_in(run.out_dir)["metrics.jsonl"] == box.files[layout.METRICS]
    assert peak < 8 << 20


def test_a_box_that_has_nothing_leaves_no_folder_here(run: Run) -> None:
    FolderStore().check(run)
    FolderStore().collect(run, MemoryBox({}))
    assert sorted(files_in(run.out_dir)) == [".gitignore", ".vastrun", "log.txt"]
    assert not (Path(run.out_dir) / "details").exists()


@pytest.mark.parametrize("content", [None, b""], ids=["no list", "an empty list"])
def test_a_box_that_ended_without_a_list_of_its_outputs_has_not_given_them_all(
    content: bytes | None, run: Run
) -> None:
    box = box_with({layout.OUTCOME: OUTCOME.to_json().encode()})
    del box.files[layout.MANIFEST]
    if content is not None:
        box.files[layout.MANIFEST] = content
    collected = FolderStore().collect(run, box)
    assert collected.evidence.damaged == ("run/manifest.json: the machine left no list of its outputs",)
    assert collected.evidence.outcome == OUTCOME


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
