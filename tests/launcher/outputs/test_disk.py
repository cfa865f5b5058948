"""The folder and the disk here: what does not take a run's files says so, and loses none."""

import multiprocessing
import os
import resource
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests import disks, parts
from tests.launcher.outputs.boxes import MemoryBox, box_with, files_in, run_in
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
