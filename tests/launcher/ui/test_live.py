"""The live view at a terminal: what stands where, through resizes, questions and a hostile log."""

import fcntl
import io
import os
import struct
import termios
from collections.abc import Iterator
from dataclasses import replace
from typing import TextIO, cast

import pyte
import pytest

from tests.fakes import FakeClock
from tests.jobs import train_job
from tests.runs import a_run
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Event, Phase, Progress
from vastrun.launcher.core.job import Limits
from vastrun.launcher.ui.live import ListScreen, LiveScreen
from vastrun.launcher.ui.question import HeldStream
from vastrun.launcher.ui.render.live import LearningCurve, sparkline
from vastrun.launcher.ui.screen import supports_live_view

SPEC = replace(train_job(), limits=Limits(usd=5.0))
RUN = a_run(spec_json=dump_job(SPEC), provider="vast", phase=Phase.TRAIN, phase_at=60.0, usd_per_hour=2.0)
HALFWAY = Progress(step=500, steps=1000, loss=0.0342, left_s=1800.0)
TRAINING = LearningCurve(
    losses=[1.0, 0.5, 0.2, 0.1, 0.05, 0.0342],
    figures={"samples_per_s": 412.0, "gpu_load": 0.97, "gpu_memory_mib": 18230.0, "gpu_power_w": 312.4},
)


class Terminal:
    """What is written to it is on its screen at once. A real one beside it has its size."""

    encoding = "utf-8"

    def __init__(self, columns: int, rows: int) -> None:
        self._keys, self._terminal = os.openpty()
        self._shown = pyte.Screen(columns, rows)
        self._stream = pyte.Stream(self._shown)
        self.is_open = True
        self.resize(columns, rows)

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._shown.resize(rows, columns)

    def write(self, text: str) -> int:
        if not self.is_open:
            raise OSError(5, "Input/output error")
        self._stream.feed(text.replace("\n", "\r\n"))
        return len(text)

    def flush(self) -> None: ...

    def fileno(self) -> int:
        return self._terminal

    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._shown.display if line.strip()]

    def close(self) -> None:
        os.close(self._keys)
        os.close(self._terminal)


class Screen:
    """A terminal as its user sees it, and the view on it."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self.clock = FakeClock()
        self.terminal = Terminal(columns, rows)
        self.held = HeldStream(lambda: cast(TextIO, self.terminal))
        self.training = TRAINING
        self.view = LiveScreen(
            self.held, began=self.clock.now(), now=self.clock.now, curve_of=lambda _: self.training
        )

    def shows(self, phase: Phase = Phase.TRAIN, progress: Progress = HALFWAY) -> None:
        """The run moves on to there."""
        self.clock.sleep(1)
        run = replace(RUN, phase=phase, phase_at=self.clock.now())
        self.view.progress(run, progress, usd=1.23)

    @property
    def lines(self) -> list[str]:
        return self.terminal.lines


@pytest.fixture
def screen() -> Iterator[Screen]:
    opened = Screen()
    yield opened
    opened.terminal.close()


def told(text: str, phase: Phase = Phase.BOOT) -> Event:
    return Event(run_id=RUN.id, at=3.0, phase=phase, text=text, usd=0.1)


def test_phases_progress_loss_gpus_and_dollars_stand_in_lines_of_their_own(screen: Screen) -> None:
    screen.shows()
    phases, progress, loss, gpus, money = screen.lines
    assert phases.startswith("plan · rent · boot · ship · train")
    assert progress.startswith("━" * 20)
    assert progress.endswith("step 500/1000  50%  ETA 30m")
    assert loss.startswith("loss 0.0342  █")
    assert loss.endswith("412 samples/s")
    assert gpus == "GPUs  load 97%  memory 18,230 MiB  312 W"
    assert money == "$1.23  at $2.00/h  about $2.23 in all  $3.77 left of $5.00"


def test_the_loss_of_each_of_several_tasks_has_a_line(screen: Screen) -> None:
    figures = {**TRAINING.figures, "loss.advection": 0.0321, "loss.darcy": 0.5}
    screen.training = replace(TRAINING, figures=figures)
    screen.shows()
    assert screen.lines[3] == "advection 0.0321  darcy 0.5"


def figures_of(gpus: int) -> dict[str, float]:
    """Of a training on so many GPUs, the last of which does little."""
    idle = gpus - 1
    each = {f"gpu{n}_load": 0.05 if n == idle else 0.97 for n in range(gpus)}
    each |= {f"gpu{n}_power_w": 80.0 if n == idle else 312.4 for n in range(gpus)}
    each |= {f"gpu{n}_memory_mib": 18230.0 for n in range(gpus)}
    return {"gpu_load": 0.85, **each, **{f"gpu{n}_temperature_c": 71.0 for n in range(gpus)}}


@pytest.mark.parametrize(("columns", "beside"), [(60, 1), (80, 2), (120, 3)])
def test_each_of_several_gpus_is_shown_as_many_in_a_row_as_fit(columns: int, beside: int) -> None:
    screen = Screen(columns, rows=24)
    screen.training = replace(TRAINING, figures=figures_of(8))
    screen.view.log("".join(f"rank0 step {n}\n" for n in range(100)))
    screen.shows()
    lines = screen.lines
    gpus = lines.index("GPUs  load 85%") + 1
    rows = lines[gpus : gpus + -(-8 // beside)]
    assert rows[0].startswith(" 0   97%   18,230 MiB   312 W   71 °C")
    assert rows[-1].endswith("7    5%   18,230 MiB    80 W   71 °C")
    assert lines[gpus + len(rows)].startswith("$1.23")
    assert lines[-1] == "  rank0 step 99"
    assert len(lines) <= 20, "the newest events have room above"
    screen.terminal.close()


def test_the_phases_are_all_named_on_60_columns() -> None:
    screen = Screen(60)
    screen.shows(Phase.TRAIN)
    screen.clock.sleep(605)
    screen.shows(Phase.COLLECT)
    assert screen.lines[0].endswith(" destroy")
    screen.terminal.close()


def test_a_long_event_goes_on_below_its_beginning(screen: Screen) -> None:
    screen.terminal.resize(60, 24)
    screen.view.report(told("the machine answers, its lease is armed and its disk is large enough"))
    first, *rest = screen.lines
    assert first.endswith("the machine answers, its lease")
    assert [line.strip() for line in rest] == ["is armed and its disk is large", "enough"]
    assert all(line.index(line.strip()) == first.index("the machine") for line in rest)


@pytest.mark.parametrize("text", ["long ", "漢字の行", "🚀 한국어 "])
@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_no_line_is_wider_than_the_terminal(columns: int, text: str) -> None:
    screen = Screen(columns)
    screen.view.log(f"rank0 {text * 60}\n")
    screen.shows()
    first = screen.lines
    screen.shows()
    assert len(screen.lines) == 6
    assert [line[:4] for line in screen.lines] == [line[:4] for line in first]
    assert columns < 60 or any(line.endswith("left of $5.00") for line in screen.lines)
    screen.terminal.close()


def test_events_stay_above_and_the_newest_lines_of_the_log_stand_below(screen: Screen) -> None:
    screen.shows(Phase.BOOT, Progress())
    screen.view.report(told("the lease is armed"))
    screen.view.log("".join(f"rank0 step {n}\n" for n in range(100)))
    screen.shows()
    screen.view.report(told("a second event"))
    lines = screen.lines
    assert "the lease is armed" in lines[0]
    assert "a second event" in lines[1]
    assert lines[2].startswith("plan")
    assert lines[-8:] == [f"  rank0 step {n}" for n in range(92, 100)]
    assert sum("step 99" in line for line in lines) == 1


@pytest.mark.parametrize(("columns", "rows"), [(60, 24), (44, 24), (120, 24), (80, 14)])
def test_a_resize_leaves_one_view(screen: Screen, columns: int, rows: int) -> None:
    screen.view.report(told("the lease is armed"))
    screen.view.log("rank0 " + "x" * 60 + "\n")
    screen.shows()
    assert screen.lines
    screen.terminal.resize(columns, rows)
    screen.shows()
    screen.shows()
    assert sum(line.startswith("plan") for line in screen.lines) == 1
    assert sum("step 500" in line for line in screen.lines) == 1
    assert all(len(line) <= columns for line in screen.lines)


def test_nothing_of_a_hostile_log_moves_the_cursor_or_breaks_the_view(screen: Screen) -> None:
    hostile = (
        "\x1b[2J\x1b[H",
        "\r\r",
        "\x1b]0;title\x07",
        "\x9b5A",
        "\b" * 50,
        "\t" * 40,
        "漢" * 90,
        "a\u0301" * 90,
        "\U0001f1e9\U0001f1ea" * 60,  # flags: two columns each, or four
        "\U0001f44d\U0001f3fd" * 60,
    )
    for text in hostile:
        screen.view.log(f"rank0 {text}end\n")
        screen.shows()
    lines = screen.lines
    assert [line.startswith("plan") for line in lines] == [True] + [False] * (len(lines) - 1)
    assert len(lines) == 5 + 8
    screen.shows()
    assert len(screen.lines) == 5 + 8


def test_a_question_is_not_painted_over(screen: Screen) -> None:
    screen.shows()
    with screen.held.held():
        screen.terminal.write("\nCtrl-C: stop, detach or continue? ")
        screen.shows()
        assert screen.lines[-1] == "Ctrl-C: stop, detach or continue?"
    screen.terminal.write("c\n")
    screen.shows()
    screen.shows()
    assert sum("stop, detach or continue?" in line for line in screen.lines) == 1
    assert screen.lines[-1].startswith("$1.23")


def test_in_the_end_the_view_is_gone_and_the_newest_lines_of_the_log_stay(screen: Screen) -> None:
    screen.view.report(told("the lease is armed"))
    screen.view.log("rank0 step 1\nrank1 the last words\n")
    screen.shows()
    screen.view.close()
    assert screen.lines[1:] == ["rank0 step 1", "rank1 the last words"]


def test_the_next_run_begins_with_a_view_of_its_own(screen: Screen) -> None:
    screen.view.log("rank0 of the first\n")
    screen.shows()
    screen.clock.sleep(1)
    second = replace(RUN, id="second", phase=Phase.PLAN, spec_json=dump_job(train_job()), usd_per_hour=0.0)
    screen.view.progress(second, Progress(), usd=0.0)
    assert not any("of the first" in line for line in screen.lines)
    assert screen.lines[-1] == "costs nothing"


def test_a_terminal_that_was_closed_ends_nothing(screen: Screen) -> None:
    screen.shows()
    screen.terminal.is_open = False
    screen.shows()
    screen.view.report(told("goes on"))
    screen.view.close()


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "dumb"}, False),
        ({}, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "xterm", "CI": "true"}, False),
    ],
)
def test_it_is_only_for_watched_terminals(screen: Screen, environ: dict[str, str], wanted: bool) -> None:
    assert supports_live_view(cast(TextIO, screen.terminal), environ) is wanted
    assert not supports_live_view(io.StringIO(), environ)


def test_a_terminal_without_room_gets_plain_lines() -> None:
    screen = Screen(rows=6)
    assert not supports_live_view(cast(TextIO, screen.terminal), {"TERM": "xterm"})
    screen.terminal.close()


def test_a_curve_falls_from_the_highest_block_to_the_lowest() -> None:
    assert sparkline([100.0, 10.0, 1.0], 3) == "█▅▁"
    assert sparkline([1.0, float("nan"), 1.0], 8) == "▁▁"
    assert sparkline([-1.0, 0.0, 1.0], 3) == "▁▅█"
    assert sparkline([1.0], 8) == sparkline([1.0, 2.0], 0) == ""
    assert len(sparkline([float(n + 1) for n in range(1000)], 32)) == 32


def test_many_runs_are_a_line_each_below_what_has_ended(screen: Screen) -> None:
    runs = [f"lr={n}  train  step {n}" for n in range(40)]
    listed = ListScreen(screen.held, lambda: ["POINT", *runs], began=screen.clock.now(), now=screen.clock.now)
    listed.gauge("3/43 ended, 40 running")
    screen.clock.sleep(1)
    listed.step("point", "1 SUCCEEDED loss 0.1: lr=7")
    screen.clock.sleep(1)
    listed.gauge("4/43 ended, 39 running")
    lines = screen.lines
    assert lines[0].endswith("1 SUCCEEDED loss 0.1: lr=7")
    assert lines[1].endswith("4/43 ended, 39 running")
    assert lines[2:4] == ["POINT", "lr=0  train  step 0"]
    assert lines[-1] == "… and 24 more"
    assert len(lines) < 24
    listed.close()
    assert screen.lines == lines[:1]
