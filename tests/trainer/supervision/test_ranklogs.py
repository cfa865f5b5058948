"""The merged log: whole lines, whatever the ranks write."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.waiting import LONGEST_S
from trainer.supervision.ranklogs import SUPERVISOR, MergedLog, Tail


class Logs:
    """Two ranks' raw logs and their merged log."""

    def __init__(self, folder: Path) -> None:
        self.raw = [folder / "rank-0.log", folder / "rank-1.log"]
        tails = tuple(Tail(path=path, source=f"rank{n}") for n, path in enumerate(self.raw))
        self.merged = MergedLog(path=folder / "run.log", tails=tails)

    def write(self, rank: int, text: bytes) -> None:
        with self.raw[rank].open("ab") as file:
            file.write(text)

    def lines(self) -> list[str]:
        """Without their times."""
        path = self.merged.path
        return [line.partition(" ")[2] for line in path.read_text().split("\n")[:-1]] if path.exists() else []


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


def test_a_line_has_time_source_and_text(logs: Logs) -> None:
    logs.merged.say("two ranks")
    assert re.fullmatch(r"\d{10}\.\d{3} supervisor two ranks\n", logs.merged.path.read_text())


def test_a_line_waits_for_its_end(logs: Logs) -> None:
    logs.write(0, b"step 1\nste")
    logs.merged.pump()
    assert logs.lines() == ["rank0 step 1"]
    logs.write(0, b"p 2\n")
    logs.merged.pump()
    assert logs.lines() == ["rank0 step 1", "rank0 step 2"]


def test_the_last_line_needs_no_end(logs: Logs) -> None:
    logs.write(1, b"Killed")
    logs.merged.drain(within_s=LONGEST_S)
    assert logs.lines() == ["rank1 Killed"]


def test_everything_is_drained_however_long(logs: Logs) -> None:
    logs.write(0, b"x" * 99 + b"\n" + b"y\n" * 300_000)
    logs.merged.drain(within_s=LONGEST_S)
    assert len(logs.lines()) == 300_001


def test_bytes_that_are_no_text_are_replaced(logs: Logs) -> None:
    logs.write(0, b"caf\xe9\n")
    logs.merged.pump()
    assert logs.lines() == ["rank0 caf\N{REPLACEMENT CHARACTER}"]


def test_of_a_progress_bar_the_last_state_is_kept(logs: Logs) -> None:
    logs.write(0, b"10%\r50%\r100%\r\n\n")
    logs.merged.pump()
    assert logs.lines() == ["rank0 100%", "rank0 "]


def test_a_very_long_line_comes_in_parts_without_waiting_for_its_end(logs: Logs) -> None:
    logs.write(0, b"z" * 20_000)
    logs.merged.pump()
    assert [len(line) for line in logs.lines()] == [8192 + 6, 8192 + 6, 20_000 - 2 * 8192 + 6]


def test_other_writers_of_the_log_are_kept(logs: Logs) -> None:
    logs.merged.path.write_text("1.000 40-data done\n")
    logs.write(0, b"hello\n")
    logs.merged.pump()
    assert logs.lines() == ["40-data done", "rank0 hello"]


def test_silence_begins_with_the_first_line_of_a_rank(logs: Logs, tmp_path: Path) -> None:
    logs.merged.say("two ranks")
    logs.merged.pump()
    assert logs.merged.silent_s is None
    logs.write(0, b"hello\n")
    logs.merged.pump()
    assert logs.merged.silent_s is not None


def test_what_the_launch_agent_prints_is_no_sign_of_life_of_a_rank(tmp_path: Path) -> None:
    (tmp_path / "agent.log").write_text("warning\n")
    tail = Tail(path=tmp_path / "agent.log", source=SUPERVISOR)
    merged = MergedLog(path=tmp_path / "run.log", tails=(tail,))
    merged.pump()
    assert merged.silent_s is None
