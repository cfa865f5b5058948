"""Signals become wishes; a wait ends when one comes."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from launcher.interrupts import Interrupts, ask_on, say_on
from launcher.model import Wish
from tests.waiting import LONGEST_S, eventually


class Said(list[str]):
    """What was said."""

    def __call__(self, text: str) -> None:
        self.append(text)


@pytest.fixture
def said() -> Said:
    return Said()


def test_without_a_signal_there_is_no_wish(said: Said) -> None:
    interrupts = Interrupts(say=said)
    with interrupts.listening():
        assert interrupts.current() is Wish.NONE
    assert not interrupts.interrupted


def test_the_first_ctrl_c_means_stop_and_the_second_destroy_and_both_are_told(said: Said) -> None:
    interrupts = Interrupts(say=said)
    with interrupts.listening():
        signal.raise_signal(signal.SIGINT)
        assert interrupts.current() is Wish.STOP
        signal.raise_signal(signal.SIGINT)
        assert interrupts.current() is Wish.DESTROY
    assert ["stopping" in said[0], "ending the machine now" in said[1]] == [True, True]


def test_a_command_may_let_go_of_the_run_at_the_first_ctrl_c(said: Said) -> None:
    interrupts = Interrupts(say=said, first=Wish.DETACH)
    with interrupts.listening():
        signal.raise_signal(signal.SIGINT)
    assert interrupts.current() is Wish.DETACH


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_whoever_only_looks_lets_go_of_the_run_whatever_the_signal_and_however_often(
    said: Said, number: signal.Signals
) -> None:
    interrupts = Interrupts(say=said, views=True)
    with interrupts.listening():
        for _ in range(3):
            signal.raise_signal(number)
    assert interrupts.current() is Wish.DETACH
    assert "detaching" in said[0]


def test_whoever_only_looks_may_still_answer_that_the_run_is_to_stop(said: Said) -> None:
    interrupts = Interrupts(say=said, ask=lambda: Wish.STOP, views=True)
    with interrupts.listening():
        signal.raise_signal(signal.SIGINT)
        eventually(lambda: interrupts.current() is Wish.STOP)


@pytest.mark.parametrize(
    ("number", "wish"), [(signal.SIGTERM, Wish.STOP), (signal.SIGHUP, Wish.DETACH)], ids=["TERM", "HUP"]
)
def test_other_signals_have_their_wishes(said: Said, number: signal.Signals, wish: Wish) -> None:
    interrupts = Interrupts(say=said)
    with interrupts.listening():
        signal.raise_signal(number)
    assert interrupts.current() is wish
    assert len(said) == 1


def test_a_weaker_wish_never_replaces_a_stronger(said: Said) -> None:
    interrupts = Interrupts(say=said)
    with interrupts.listening():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)
    assert interrupts.current() is Wish.STOP


def test_a_signal_that_was_ignored_stays_ignored_and_former_handlers_come_back(said: Said) -> None:
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    before = signal.getsignal(signal.SIGINT)
    try:
        interrupts = Interrupts(say=said)
        with interrupts.listening():
            signal.raise_signal(signal.SIGHUP)
        assert interrupts.current() is Wish.NONE
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGHUP, former)


def test_a_wait_ends_at_once_when_a_wish_comes(said: Said) -> None:
    interrupts = Interrupts(say=said)
    began = time.monotonic()
    with interrupts.listening():
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
        interrupts.sleep(600)
    assert time.monotonic() - began < LONGEST_S
    assert interrupts.current() is Wish.STOP


def test_a_wish_that_came_ends_one_wait_only(said: Said) -> None:
    interrupts = Interrupts(say=said)
    with interrupts.listening():
        signal.raise_signal(signal.SIGTERM)
    interrupts.sleep(30)
    began = time.monotonic()
    interrupts.sleep(0.05)
    assert time.monotonic() - began >= 0.04


def test_after_its_time_it_wants_to_detach(said: Said) -> None:
    assert Interrupts(say=said, until=time.time() + 60).current() is Wish.NONE
    late = Interrupts(say=said, until=time.time() - 1)
    assert late.timed_out
    assert late.current() is Wish.DETACH


def test_at_a_terminal_the_first_ctrl_c_asks(said: Said) -> None:
    answered = threading.Event()

    def ask() -> Wish:
        answered.wait(5)
        return Wish.DETACH

    interrupts = Interrupts(say=said, ask=ask)
    with interrupts.listening():
        signal.raise_signal(signal.SIGINT)
        assert interrupts.current() is Wish.NONE
        answered.set()
        eventually(lambda: interrupts.current() is Wish.DETACH)


def test_a_second_ctrl_c_while_it_asks_destroys(said: Said) -> None:
    answered = threading.Event()
    interrupts = Interrupts(say=said, ask=lambda: Wish.STOP if answered.wait(5) else Wish.NONE)
    with interrupts.listening():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert interrupts.current() is Wish.DESTROY
        answered.set()
    assert interrupts.current() is Wish.DESTROY


@pytest.mark.parametrize(
    ("keys", "wish"),
    [("d\n", Wish.DETACH), ("s\n", Wish.STOP), ("\n", Wish.STOP), ("what\ndetach\n", Wish.DETACH)],
    ids=["detach", "stop", "enter", "asks again"],
)
def test_the_question_takes_an_answer(said: Said, keys: str, wish: Wish) -> None:
    reader, writer = os.pipe()
    lines = keys.splitlines(keepends=True)
    os.write(writer, lines.pop(0).encode())
    if lines:
        threading.Thread(target=lambda: _type_after(said, writer, lines[0]), daemon=True).start()
    assert ask_on(reader, said, answer_s=10)() is wish
    assert "[d]etach" in said[0]


def _type_after(said: Said, writer: int, keys: str) -> None:
    eventually(lambda: len(said) > 1)
    os.write(writer, keys.encode())


def test_no_answer_in_time_means_stop(said: Said) -> None:
    reader, _ = os.pipe()
    assert ask_on(reader, said, answer_s=0.01)() is Wish.STOP


def test_a_terminal_that_was_closed_does_not_stop_the_launcher() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    say_on(writer)("nobody hears this")
