"""Reading a file that somebody else appends to."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.outputs.folder import CHUNK, GrowingFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.log"


def test_only_whole_lines_are_read_and_each_once(path: Path) -> None:
    file = GrowingFile(path)
    assert file.more() == ""
    path.write_text("one\ntw")
    assert file.more() == "one\n"
    assert file.more() == ""
    path.write_text("one\ntwo\n")
    assert file.more() == "two\n"


def test_it_may_start_at_the_last_lines(path: Path) -> None:
    path.write_text("".join(f"{n}\n" for n in range(10)))
    assert GrowingFile(path, last_lines=2).more() == "8\n9\n"
    assert GrowingFile(path, last_lines=0).more() == ""
    assert GrowingFile(path, last_lines=99).more().startswith("0\n")


def test_a_line_without_an_end_does_not_stop_it(path: Path) -> None:
    path.write_text("x" * (CHUNK + 1) + "\nlast\n")
    file = GrowingFile(path)
    assert len(file.more()) == CHUNK
    assert file.more() == "x\nlast\n"


def test_bytes_that_are_no_text_are_replaced(path: Path) -> None:
    path.write_bytes(b"\xff\n")
    assert GrowingFile(path).more() == "\ufffd\n"
