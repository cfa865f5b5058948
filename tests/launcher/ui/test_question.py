"""The question of Ctrl-C, on a terminal: it stands still, one key answers, silence changes nothing."""

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.pty import CTRL_C, ENTER, Pty, pty
from tests.waiting import eventually

ROOT = Path(__file__).parents[3]
LONG_S, SHORT_S = 600.0, 0.3
NARROW, WIDE = 60, 100
FIRST, SECOND = "what should happen to this run?", "The run is stopping"

PROMPT = re.compile(r"Press .+ \(c in \d+ s\):")

Chatty = Callable[..., Pty]


@pytest.fixture
def chatty() -> Iterator[Chatty]:
    """Starts a launcher that prints all the time."""
    with ExitStack() as opened:

        def start(
            who: str = "drives", *, answer_s: float = LONG_S, columns: int = NARROW, term: str = "xterm"
        ) -> Pty:
            command = [sys.executable, "-m", "tests.launcher.ui.asks_at_terminal", who, str(answer_s)]
            environ = {**os.environ, "TERM": term}
            started = opened.enter_context(pty(command, columns=columns, cwd=ROOT, environ=environ))
            started.shows("line 3 ")
            return started

        yield start


def numbers(launcher: Pty) -> list[int]:
    """Of the lines that the launcher printed; the terminal shows ^C where the cursor is just then."""
    return [int(number) for number in re.findall(r"^(?:\^C)?line (\d+) ", launcher.text, re.MULTILINE)]


def assert_none_is_missing(launcher: Pty) -> None:
    shown = numbers(launcher)
    assert shown == list(range(1, len(shown) + 1))


def prompted(launcher: Pty, *, but: str = "") -> list[str]:
    """The screen, once it ends with a countdown, and not with `but`: which second is shown next is open."""

    def look() -> list[str]:
        lines = launcher.lines
        return lines if PROMPT.fullmatch(lines[-1]) and lines[-1] != but else []

    return eventually(look, what="a countdown that moves")


@pytest.mark.parametrize("columns", [NARROW, WIDE])
def test_the_question_stands_still_and_counts_down(chatty: Chatty, columns: int) -> None:
    launcher = chatty(columns=columns)
    launcher.press(CTRL_C)
    before = prompted(launcher)
    after = prompted(launcher, but=before[-1])

    assert after[:-1] == before[:-1]
    asked = after[next(n for n, line in enumerate(after) if FIRST in line) :]
    assert re.findall(r"^  (\S)  ", "\n".join(asked), re.MULTILINE) == ["s", "d", "c"]
    assert asked[-1].startswith("Press s, d or c (c in 5")
    assert max(len(line) for line in asked) < NARROW


@pytest.mark.parametrize(("key", "asked"), [("s", "stop"), ("d", "detach"), ("S", "stop")])
def test_one_key_answers(chatty: Chatty, key: str, asked: str) -> None:
    launcher = chatty()
    launcher.press(CTRL_C)
    launcher.shows(FIRST)
    launcher.press("?" + key)
    launcher.shows(f"the request is {asked}, interrupted: True")
    assert launcher.end() == 0


@pytest.mark.parametrize("key", ["c", ENTER, None], ids=["c", "enter", "silence"])
def test_to_continue_changes_nothing_and_no_line_is_lost(chatty: Chatty, key: str | None) -> None:
    launcher = chatty(answer_s=LONG_S if key else SHORT_S)
    launcher.press(CTRL_C)
    launcher.shows(FIRST)
    last = numbers(launcher)[-1]
    if key:
        launcher.press(key)
    launcher.shows("continuing")
    launcher.shows(f"line {last + 5} ")
    assert_none_is_missing(launcher)


def test_keys_that_were_typed_before_are_no_answer(chatty: Chatty) -> None:
    launcher = chatty()
    launcher.press("s\n" + CTRL_C)
    prompted(launcher, but=prompted(launcher)[-1])
    launcher.press("d")
    launcher.shows("the request is detach")


@pytest.mark.parametrize(("who", "asked"), [("drives", "stop"), ("views", "detach")])
def test_a_second_ctrl_c_never_costs_the_outputs(chatty: Chatty, who: str, asked: str) -> None:
    launcher = chatty(who)
    launcher.press(CTRL_C)
    launcher.shows(FIRST)
    launcher.press(CTRL_C)
    launcher.shows(f"the request is {asked}")
    assert launcher.end() == 0


def test_while_it_stops_only_a_key_of_its_own_destroys(chatty: Chatty) -> None:
    launcher = chatty("stops")
    launcher.press(CTRL_C)
    launcher.shows(FIRST)
    launcher.press("s")
    launcher.shows("stopping: save what was trained")

    launcher.press(CTRL_C)
    launcher.shows(SECOND)
    assert max(len(line) for line in launcher.lines[-4:]) < NARROW
    launcher.press("c")
    launcher.shows("continuing")

    launcher.press(CTRL_C)
    asked = prompted(launcher)[-1]
    launcher.press(CTRL_C)
    prompted(launcher, but=asked)
    launcher.press("x")
    launcher.shows("the request is destroy")


@pytest.mark.parametrize(
    ("number", "asked"), [(signal.SIGTERM, "stop"), (signal.SIGHUP, "detach")], ids=["TERM", "HUP"]
)
def test_another_signal_takes_the_question_away(chatty: Chatty, number: signal.Signals, asked: str) -> None:
    launcher = chatty()
    launcher.press(CTRL_C)
    launcher.shows(FIRST)
    launcher.send(number)
    launcher.shows(f"the request is {asked}, interrupted: False")


def test_a_run_that_ends_takes_the_question_away_and_the_terminal_is_as_before(chatty: Chatty) -> None:
    launcher = chatty()
    before = launcher.modes()
    launcher.press(CTRL_C)
    launcher.shows(FIRST)
    launcher.send(signal.SIGUSR1)
    launcher.shows("the request is none")
    assert launcher.end() == 0
    assert_none_is_missing(launcher)
    assert launcher.modes() == before


def test_a_terminal_that_can_not_overwrite_shows_one_countdown(chatty: Chatty) -> None:
    launcher = chatty(answer_s=1.9, term="dumb")
    launcher.press(CTRL_C)
    launcher.shows("continuing")
    assert len(re.findall(r"Press s, d or c \(c in \d s\):", launcher.text)) == 1


def test_in_the_background_nobody_is_asked(chatty: Chatty) -> None:
    launcher = chatty("background")
    os.kill(int(re.findall(r"^process (\d+)", launcher.text, re.MULTILINE)[0]), signal.SIGINT)
    launcher.shows("the request is stop")
    assert FIRST not in launcher.text
    assert launcher.end() == 0
