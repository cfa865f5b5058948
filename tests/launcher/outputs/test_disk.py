"""The folder and the disk here: what does not take a run's files says so, and loses none.

Files of a box come to lie there: none over another, none where a file of ours belongs.
"""

import multiprocessing
import os
import resource
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests import disks, parts
from tests.launcher.outputs.boxes import LINES, MemoryBox, box_with, files_in, run_in
from vastrun.contract import layout
from vastrun.launcher.core import Run
from vastrun.launcher.core.errors import NoRoomError, StorageError, UsageError
from vastrun.launcher.outputs.store import FolderStore


def test_a_folder_that_takes_no_files_is_told_before_anything_is_rented(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot write to .*file/run: Not a directory") as caught:
        FolderStore().check(run_in(tmp_path / "file" / "run"))
    assert "--out" in caught.value.hint


def test_a_folder_of_outputs_keeps_itself_out_of_git(run: Run) -> None:
    FolderStore().check(run)
    FolderStore().check(run)
    assert files_in(run.out_dir) == {".gitignore": b"*\n", ".vastrun": b"calm-heron-3f1a\n"}


@pytest.mark.parametrize("name", ["notes", ".gitignore", "checkpoints/step-000005/weights"])
def test_a_folder_with_files_of_the_user_is_refused_and_stays_as_it_is(run: Run, name: str) -> None:
    place = Path(run.out_dir) / name
    place.parent.mkdir(parents=True)
    place.write_text("mine")
    with pytest.raises(UsageError, match="is not empty") as refused:
        FolderStore().check(run)
    assert "--out" in refused.value.hint
    assert files_in(run.out_dir) == {name: b"mine"}


def test_a_folder_with_the_outputs_of_another_run_is_refused_unless_it_has_none(run: Run) -> None:
    FolderStore().check(run)
    FolderStore().check(replace(run, id="quick-tern-1b02"))
    (Path(run.out_dir) / "log.txt").write_text("of quick-tern")
    FolderStore().check(replace(run, id="quick-tern-1b02"))
    with pytest.raises(UsageError, match="holds the outputs of quick-tern-1b02"):
        FolderStore().check(run)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    parts.require("disks")
    with disks.small_disk(tmp_path / "disk", "56m") as disk:
        yield disk


def test_a_disk_that_is_nearly_full_is_told_before_anything_is_rented(tiny_disk: Path) -> None:
    (tiny_disk / "filler").write_bytes(bytes(10 << 20))
    with pytest.raises(StorageError, match="MB free, and 50 MB are needed"):
        FolderStore().check(run_in(tiny_disk / "run"))


def test_outputs_too_large_for_the_disk_are_refused_whole_and_come_when_there_is_room(
    tiny_disk: Path,
) -> None:
    filler = tiny_disk / "filler"
    filler.write_bytes(bytes(6 << 20))
    run = run_in(tiny_disk / "run")
    box = box_with({"run/outputs/a": bytes(3 << 20)})
    with pytest.raises(StorageError, match="MB are needed"):
        FolderStore().collect(run, box)
    filler.unlink()
    assert FolderStore().collect(run, box).evidence.damaged == ()


def test_a_log_that_fills_the_disk_loses_no_byte(tiny_disk: Path) -> None:
    filler = tiny_disk / "filler"
    filler.write_bytes(bytes(50 << 20))
    run, log = run_in(tiny_disk / "run"), os.urandom(7 << 20).replace(b"\n", b"x") + b"\n"
    box = MemoryBox({layout.LOG: log})
    with pytest.raises(NoRoomError, match="MB are needed"):
        pump_all(run, box)
    filler.unlink()
    pump_all(run, box)
    assert files_in(run.out_dir)["log.txt"] == log


def test_an_index_that_the_disk_does_not_take_leaves_the_one_before(tiny_disk: Path) -> None:
    run, page = run_in(tiny_disk / "run"), "x" * 9
    output_store = FolderStore(index=lambda _run, _now: {"README.md": page})
    output_store.collect(run, box_with({}))
    output_store.describe(run, 0.0)
    page = "y" * (9 << 20)
    with pytest.raises(NoRoomError, match="MB are needed"):
        output_store.describe(run, 0.0)
    assert files_in(run.out_dir)["README.md"] == b"x" * 9
    assert not list((tiny_disk / "run").glob(".README*"))


def pump_all(run: Run, box: MemoryBox) -> None:
    while FolderStore().download_log(run, box):
        pass


def collect_with_files_capped(folder: Path) -> None:
    """Runs in a process of its own: no file may grow beyond 1 MB."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
    try:
        FolderStore().collect(run_in(folder), box_with({"run/outputs/a": bytes(3 << 20)}))
    except StorageError as error:
        (folder / "said").write_text(str(error))


def test_a_write_that_fails_half_way_is_one_clear_error_and_can_be_taken_up(tmp_path: Path) -> None:
    child = multiprocessing.get_context("fork").Process(target=collect_with_files_capped, args=(tmp_path,))
    child.start()
    child.join(30)
    assert (tmp_path / "said").read_text() == f"cannot write to {tmp_path}: File too large"
    box = box_with({"run/outputs/a": bytes(3 << 20)})
    assert FolderStore().collect(run_in(tmp_path), box).evidence.damaged == ()
    assert box.asked.count("run/outputs/a") == 2
    assert files_in(str(tmp_path))["outputs/a"] == bytes(3 << 20)


def test_a_folder_to_which_no_node_brought_anything_home_is_free(run: Run) -> None:
    other, out = replace(run, id="quick-tern-1b02"), Path(run.out_dir)
    node = replace(run, id=f"{run.id}-n1", out_dir=str(out / "node-1"))
    for one in (run, node):
        FolderStore().check(one)
    FolderStore().check_unused(other)
    (out / "node-1" / "log.txt").write_text("a line")
    with pytest.raises(UsageError):
        FolderStore().check_unused(other)


@pytest.mark.parametrize(
    "other", ["run/outputs/LOSS.txt", "code/Loss.txt", "run/outputs/los\N{LATIN SMALL LETTER LONG S}.txt"]
)
def test_on_a_disk_that_ignores_case_no_file_is_written_over_another(run: Run, other: str) -> None:
    box = box_with(
        {
            "run/outputs/loss.txt": b"first",
            other: b"second",
            "run/outputs/loss.txt.1": b"third",
            "run/stacks/a": b"own",
            "run/Stacks/A": b"other",
        }
    )
    collected = FolderStore(lambda _: True).collect(run, box)
    assert collected.evidence.damaged == ()
    home = files_in(run.out_dir)
    assert collected.renamed == {other: f"outputs/{Path(other).name}.2", "run/Stacks/A": "details/Stacks/A.1"}
    assert [home[name] for name in collected.renamed.values()] == [b"second", b"other"]
    assert home["outputs/loss.txt"] == b"first"
    assert home["outputs/loss.txt.1"] == b"third"
    assert len({name.casefold() for name in home}) == len(home)
    assert FolderStore(lambda _: True).collect(run, box) == collected


def test_on_a_disk_that_minds_case_names_stay(run: Run) -> None:
    files = {"run/outputs/loss.txt": b"first", "run/outputs/LOSS.txt": b"second"}
    assert FolderStore(lambda _: False).collect(run, box_with(files)).renamed == {}
    assert files_in(run.out_dir)["outputs/LOSS.txt"] == b"second"


def test_files_from_the_code_and_from_the_outputs_lie_side_by_side_whatever_their_names(run: Run) -> None:
    files = {"code/a": b"1", "run/outputs/a": b"2", "code/b": b"3", "run/outputs/b/c": b"4", "code/b-d": b"5"}
    collected = FolderStore(lambda _: False).collect(run, box_with(files))
    assert collected.evidence.damaged == ()
    assert collected.renamed == {"run/outputs/a": "outputs/a.1", "code/b": "outputs/b.1"}
    home = files_in(run.out_dir)
    local_paths = ("outputs/a", "outputs/a.1", "outputs/b.1", "outputs/b/c", "outputs/b-d")
    assert [home[place] for place in local_paths] == [b"1", b"2", b"3", b"4", b"5"]


def test_no_file_of_a_box_lies_on_top_but_what_belongs_there(run: Run) -> None:
    names = ("README.md", "report.html", "result.json", "log.txt", ".vastrun.part", "details/x", "outputs/x")
    FolderStore().collect(run, box_with({f"{at}{n}": b"x" for at in ("", "run/", "code/") for n in names}))
    top = {name for name in files_in(run.out_dir) if "/" not in name}
    assert top == {"log.txt"}
    assert files_in(run.out_dir)["log.txt"] == LINES.encode()


def test_whether_a_disk_ignores_case_is_found_out_on_the_disk(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    one_name = (tmp_path / "A").exists()
    files = {"run/outputs/loss.txt": b"first", "run/outputs/LOSS.txt": b"second"}
    assert bool(FolderStore().collect(run, box_with(files)).renamed) == one_name
