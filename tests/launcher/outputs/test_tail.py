"""The copy of a box's log grows with it, and each byte comes once."""

from pathlib import Path

import pytest

from tests.launcher.outputs.boxes import LINES, MemoryBox, box_with, files_in
from vastrun.contract import layout
from vastrun.launcher.core import Run
from vastrun.launcher.outputs.folder import CHUNK
from vastrun.launcher.outputs.store import LARGE_BYTES, FolderStore, is_large, text_from_last

MARK = " rank1 Traceback (most recent call last)"


def test_the_log_comes_in_parts_and_each_byte_once(run: Run) -> None:
    box = MemoryBox({layout.LOG: LINES[:25].encode()})
    assert FolderStore().download_log(run, box) == LINES[:19]
    box.files[layout.LOG] = LINES.encode()
    assert FolderStore().download_log(run, box) == LINES[19:]
    assert FolderStore().download_log(run, box) == ""
    assert files_in(run.out_dir) == {"log.txt": LINES.encode()}


def test_a_log_that_was_begun_anew_on_the_box_is_kept_beside_the_new_one(run: Run) -> None:
    box = MemoryBox({layout.LOG: LINES.encode()})
    FolderStore().download_log(run, box)
    for number, text in enumerate(("2.000 rank0 again\n", "3.000 rank0 and again\n"), 1):
        bytes_held = (Path(run.out_dir) / "log.txt").read_text()
        box.files[layout.LOG] = text.encode()
        assert FolderStore().download_log(run, box) == text
        assert (Path(run.out_dir) / f"log.txt.{number}").read_text() == bytes_held


def test_a_pump_cut_off_in_mid_line_goes_on_where_the_file_ends(run: Run) -> None:
    Path(run.out_dir).mkdir(parents=True)
    (Path(run.out_dir) / "log.txt").write_bytes(LINES.encode()[:30])
    FolderStore().download_log(run, MemoryBox({layout.LOG: LINES.encode()}))
    assert files_in(run.out_dir)["log.txt"] == LINES.encode()


def test_a_log_of_many_megabytes_is_pumped_in_bounded_parts(run: Run) -> None:
    log = b"x" * 99 + b"\n"
    box = MemoryBox({layout.LOG: log * 200_000})
    output_store = FolderStore()
    sizes = []
    while text := output_store.download_log(run, box):
        sizes.append(len(text))
    assert sum(sizes) == 20_000_000
    assert max(sizes) <= 8 << 20


def test_a_line_without_an_end_is_collected_when_the_run_is_over(run: Run) -> None:
    box = box_with({})
    box.files[layout.LOG] = b"1.0 rank0 Segmentation fau"
    assert FolderStore().download_log(run, box) == ""
    FolderStore().collect(run, box)
    assert files_in(run.out_dir)["log.txt"] == b"1.0 rank0 Segmentation fau"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.txt"


def test_the_last_mark_is_found_with_the_whole_line_and_what_follows(log: Path) -> None:
    log.write_text(
        f"1.000{MARK}:\n1.000 rank1 old\n" + "1.000 rank0 x\n" * 1000 + f"2.000{MARK}:\n3.000 rank1 new\n"
    )
    assert text_from_last(log, MARK) == f"2.000{MARK}:\n3.000 rank1 new\n"


def test_a_mark_in_the_first_line_is_found(log: Path) -> None:
    log.write_bytes(f"1.000{MARK}".encode() + b"\xff\n")
    assert text_from_last(log, MARK) == f"1.000{MARK}\ufffd\n"


def test_without_a_mark_or_a_log_there_is_nothing(log: Path) -> None:
    assert text_from_last(log, MARK) == ""
    log.touch()
    assert text_from_last(log, MARK) == ""
    log.write_text("1.000 rank0 x\n")
    assert text_from_last(log, MARK) == ""


def test_a_chunk_is_read_at_most(log: Path) -> None:
    log.write_text(f"1.000{MARK}:\n" + "x" * 2 * CHUNK)
    assert len(text_from_last(log, MARK)) == CHUNK


def test_a_log_is_large_by_its_size(log: Path) -> None:
    assert not is_large(log)
    log.touch()
    assert not is_large(log)
    with log.open("wb") as file:
        file.truncate(LARGE_BYTES)
    assert is_large(log)
