"""What a user sees: plain lines in a file, one living line at a terminal."""

import fcntl
import io
import os
import struct
import termios
from typing import TextIO

import pytest

from tests.fakes import FakeClock
from tests.runs import a_run
from vastrun.launcher.core import Event, Phase, Progress
from vastrun.launcher.ui.render.runs import progress_text
from vastrun.launcher.ui.screen import StreamScreen, TerminalCapabilities

RUN = a_run(phase=Phase.TRAIN, steps=200)


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


class Closed(io.StringIO):
    def write(self, _: str) -> int:
        raise OSError(5, "Input/output error")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def screen_on(stream: TextIO, clock: FakeClock, *, live: bool, color: bool = False) -> StreamScreen:
    return StreamScreen(
        stream, TerminalCapabilities(live=live, color=color), began=clock.now(), now=clock.now
    )


def test_a_step_shows_elapsed_time_and_dollars(clock: FakeClock) -> None:
    out = io.StringIO()
    screen = screen_on(out, clock, live=False)
    screen.report(Event(run_id="r", at=clock.now() + 92, phase=Phase.RENT, text="machine 7", usd=0.25))
    assert out.getvalue().split() == ["1m", "32s", "$0.250", "rent", "machine", "7"]


def test_log_lines_lose_their_time_and_what_would_steer_the_terminal(clock: FakeClock) -> None:
    out = io.StringIO()
    screen = screen_on(out, clock, live=False)
    screen.log(
        "1800000000.000 rank0 50%\r100%\r\n1800000000.100 rank1 \x1b]0;title\x07\x1b[2Jboo\nnot ours\n"
    )
    assert out.getvalue().splitlines()[0] == "rank0 100%"
    assert "\x1b" not in out.getvalue()
    assert "\x07" not in out.getvalue()
    assert out.getvalue().endswith("not ours\n")


def test_a_log_line_that_comes_in_parts_is_shown_once_it_is_whole(clock: FakeClock) -> None:
    out = io.StringIO()
    screen = screen_on(out, clock, live=False)
    screen.log("1800000000.000 rank0 hel")
    assert out.getvalue() == ""
    screen.log("lo\n")
    assert out.getvalue() == "rank0 hello\n"


def test_at_a_terminal_progress_is_one_line_below_all_others(clock: FakeClock) -> None:
    out = Tty()
    screen = screen_on(out, clock, live=True)
    screen.progress(RUN, Progress(step=20, steps=200, loss=0.5), usd=0.1)
    assert out.getvalue().endswith("step 20/200 (10%)  loss 0.5")
    screen.log("1800000000.000 rank0 hello\n")
    above, below = out.getvalue().rsplit("\n", 1)
    assert above.endswith("rank0 hello")
    assert below.endswith("loss 0.5")
    screen.close()
    assert out.getvalue().endswith("\r\x1b[K")


def test_in_a_file_progress_is_a_line_now_and_then_and_only_when_it_moved(clock: FakeClock) -> None:
    out = io.StringIO()
    screen = screen_on(out, clock, live=False)
    for step in range(61):
        screen.progress(RUN, Progress(step=step, steps=200), usd=0.0)
        clock.sleep(1)
    assert [line.split("step ")[1] for line in out.getvalue().splitlines()] == ["1/200 (0%)", "31/200 (16%)"]
    clock.sleep(100)
    screen.progress(RUN, Progress(step=31, steps=200), usd=0.0)
    assert len(out.getvalue().splitlines()) == 2


def test_at_a_terminal_time_and_dollars_go_on_while_no_step_is_done(clock: FakeClock) -> None:
    out = Tty()
    screen = screen_on(out, clock, live=True)
    for second in range(3):
        screen.progress(RUN, Progress(activity="loading data"), usd=second / 1000)
        clock.sleep(1)
    lines = [line.split() for line in out.getvalue().split("\r\x1b[K")]
    assert lines[1:] == [
        ["0.0s", "$0.00", "train", "loading", "data"],
        ["1.0s", "$0.001", "train", "loading", "data"],
        ["2.0s", "$0.002", "train", "loading", "data"],
    ]


def test_the_line_of_progress_fits_the_terminal(clock: FakeClock) -> None:
    leader, follower = os.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    with os.fdopen(follower, "w") as out:
        screen = screen_on(out, clock, live=True)
        screen.progress(RUN, Progress(step=20, steps=200, loss=0.5, left_s=720), usd=0.1)
        line = os.read(leader, 1000).decode().removeprefix("\r\x1b[K")
    os.close(leader)
    assert len(line) == 39
    assert line.endswith("…")


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (Progress(), ""),
        (Progress(activity="compiling the model"), "compiling the model"),
        (Progress(step=0, steps=200, loss=2.0, activity="loading data"), "loading data"),
        (Progress(step=5), "step 5"),
        (Progress(step=20, steps=200, left_s=720), "step 20/200 (10%)  ETA 12m"),
        (
            Progress(step=20, steps=200, loss=0.5, activity="evaluating", left_s=42),
            "step 20/200 (10%)  loss 0.5  evaluating  ETA 40s",
        ),
        (Progress(step=20, steps=200, left_s=7500), "step 20/200 (10%)  ETA 2h 05m"),
    ],
)
def test_progress_says_what_is_known(progress: Progress, text: str) -> None:
    assert progress_text(progress) == text


def test_a_terminal_that_was_closed_does_not_stop_the_launcher(clock: FakeClock) -> None:
    screen_on(Closed(), clock, live=True).log("1800000000.000 rank0 hello\n")


@pytest.mark.parametrize(
    ("stream", "environ", "live", "color"),
    [
        (Tty(), {"TERM": "xterm"}, True, True),
        (Tty(), {"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        (Tty(), {"TERM": "dumb"}, False, False),
        (io.StringIO(), {"TERM": "xterm"}, False, False),
    ],
    ids=["terminal", "NO_COLOR", "dumb", "file"],
)
def test_the_look_follows_stream_and_environment(
    stream: io.StringIO, environ: dict[str, str], live: bool, color: bool
) -> None:
    assert TerminalCapabilities.of(stream, environ) == TerminalCapabilities(live=live, color=color)


def test_colour_is_used_only_where_it_may_be(clock: FakeClock) -> None:
    event = Event(run_id="r", at=clock.now(), phase=Phase.RENT, text="x")
    plain, colored = io.StringIO(), io.StringIO()
    screen_on(plain, clock, live=True).report(event)
    screen_on(colored, clock, live=True, color=True).report(event)
    assert "\x1b[" not in plain.getvalue()
    assert "\x1b[1m" in colored.getvalue()
