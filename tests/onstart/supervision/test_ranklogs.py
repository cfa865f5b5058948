"""The merged log: whole lines, whatever the ranks write."""

import re
from pathlib import Path

import pytest

from tests.waiting import LONGEST_S
from vastrun.onstart.supervision.ranklogs import SUPERVISOR, MergedLog, Tail


class Logs:
    """Two ranks' raw logs and their merged log, and a clock."""

    def __init__(self, folder: Path) -> None:
        self.now, paths = 100.0, [folder / "rank-0.log", folder / "rank-1.log"]
        self.tails = tuple(
            Tail(path=path, source=f"rank{n}", clock=lambda: self.now) for n, path in enumerate(paths)
        )
        self.merged = MergedLog(path=folder / "run.log", tails=self.tails)

    def write(self, rank: int, text: bytes) -> None:
        with self.tails[rank].path.open("ab") as file:
            file.write(text)

    def shown(self, text: bytes, *, after_s: float) -> list[str]:
        """What is shown of the first rank once it wrote this, so many seconds later."""
        self.now += after_s
        self.write(0, text)
        return list(self.tails[0].lines())

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


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        pytest.param(b"Killed", ["Killed"], id="the last line needs no end"),
        pytest.param(b"caf\xe9\n", ["caf\N{REPLACEMENT CHARACTER}"], id="bytes that are no text"),
        pytest.param(b"10%\r50%\r100%\r\n\n", ["100%", ""], id="the last state of a progress bar"),
        pytest.param(b"y\n" * 300_000, ["y"] * 300_000, id="everything, however long"),
    ],
)
def test_all_that_a_rank_wrote_is_drained(written: bytes, shown: list[str], logs: Logs) -> None:
    logs.write(1, written)
    logs.merged.drain(within_s=LONGEST_S)
    assert logs.lines() == [f"rank1 {line}" for line in shown]


@pytest.mark.parametrize("form", ["\r%d/99", "%d/99\r", "\r\x1b[K%d/99\r"])
def test_a_bar_of_carriage_returns_alone_is_shown_once_a_second(logs: Logs, form: str) -> None:
    shown: list[str] = []
    for step in range(40):
        shown += logs.shown((form % step).encode(), after_s=0.25)
    plain = [line.replace("\x1b[K", "") for line in shown]
    assert plain == [f"{step}/99" for step in range(0, 40, 4)]


BARS: dict[str, list[tuple[bytes, float, list[str]]]] = {
    "a bar that stands still is shown once": [
        *((b"\r5/9", 0.0, ["5/9"]), (b"", 2.0, []), (b"\r5/9", 2.0, []), (b"\r6/9", 2.0, ["6/9"])),
    ],
    "the end of a bar is shown once": [
        *((b"\r8/9", 0.0, ["8/9"]), (b"\r9/9\ndone\n", 0.1, ["9/9", "done"]), (b"\r1/9", 2.0, ["1/9"])),
        *((b"\nnext\n", 2.0, ["next"]), (b"\r2/9", 2.0, ["2/9"])),
    ],
    "the end of a line that comes in two parts is no second line": [
        *((b"hello\r", 0.0, ["hello"]), (b"\n", 0.0, []), (b"hello\r", 2.0, ["hello"]), (b"\n\n", 0.0, [""])),
    ],
    "text after a bar goes on where it stands": [
        *((b"\r1/9", 0.0, ["1/9"]), (b" loss 0.1", 0.0, []), (b" lr 1\n", 0.0, ["1/9 loss 0.1 lr 1"])),
    ],
    "a bar of any length needs no memory": [
        (b"".join(b"\r%d/99999" % step for step in range(20_000)), 0.0, ["19999/99999"]),
        (b"\r20000/99999\n", 0.0, ["20000/99999"]),
    ],
}
"""What is written, after how many seconds, and what is shown then."""


@pytest.mark.parametrize("what", BARS)
def test_of_a_bar_each_state_is_shown_once(what: str, logs: Logs) -> None:
    for text, after_s, shown in BARS[what]:
        assert logs.shown(text, after_s=after_s) == shown
    assert list(logs.tails[0].last_line()) == []


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


def test_of_a_flood_the_end_of_each_rank_is_there_and_the_rest_is_named(logs: Logs) -> None:
    flood = b"".join(b"step %d loss 0.1\n" % step for step in range(100_000))
    logs.write(0, flood + b"end of rank 0\n")
    logs.write(1, flood + b"ValueError: of rank 1")
    logs.merged.drain(within_s=0.0)
    lines = logs.lines()
    gaps = [line for line in lines if line.startswith(SUPERVISOR)]
    assert [gap.split()[1] for gap in gaps] == ["rank0:", "rank1:"]
    assert all("MB of its output are skipped; " in gap for gap in gaps)
    assert gaps[1].endswith(f"{logs.merged.path.parent.name}/rank-1.log")
    assert lines.index("rank0 end of rank 0") < lines.index(gaps[1])
    assert lines[-1] == "rank1 ValueError: of rank 1"
    assert all(
        re.fullmatch(r"rank\d (step \d+ loss 0\.1|end .*|ValueError.*)|supervisor .*", x) for x in lines
    )


def test_a_gap_is_named_with_its_size(logs: Logs) -> None:
    logs.write(0, b"x" * 99 + b"\n" + b"y" * 99 + b"\n")
    logs.merged.pump()
    logs.write(0, (b"z" * 99 + b"\n") * 50_000)
    logs.merged.drain(within_s=0.0)
    (gap,) = [line for line in logs.lines() if line.startswith(SUPERVISOR)]
    shown = sum(len(line) - 5 for line in logs.lines() if line.startswith("rank0"))
    left_out = float(gap.split()[2])
    assert abs(shown + left_out * 1e6 - 50_002 * 100) < 0.1e6


@pytest.mark.parametrize(("size", "skipped"), [(1 << 18, 0), ((1 << 18) + 1, 64)])
def test_output_that_just_fits_is_shown_from_its_first_line(size: int, skipped: int, tmp_path: Path) -> None:
    tail = Tail(path=tmp_path / "rank-0.log", source="rank0")
    tail.path.write_bytes((b"x" * 63 + b"\n") * (1 << 12) + b"y" * (size - (1 << 18)))
    assert tail.skip_to_end() == skipped
    assert len(list(tail.lines())) == (size - skipped) // 64


def test_a_long_line_without_an_end_is_no_gap_of_its_own(logs: Logs) -> None:
    logs.write(0, b"q" * 2_000_000)
    logs.merged.drain(within_s=0.0)
    assert [line.split()[0] for line in logs.lines()] == [SUPERVISOR]
