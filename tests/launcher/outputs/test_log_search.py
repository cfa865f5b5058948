"""A search in a large log from its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from vastrun.launcher.outputs.folder import CHUNK
from vastrun.launcher.outputs.log_search import LARGE_BYTES, is_large, text_from_last

MARK = " rank1 Traceback (most recent call last)"


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
