"""Signals become requests; a wait ends when one comes."""

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.waiting import LONGEST_S, eventually
from vastrun.launcher.core import KeepAnswer, Phase, UserRequest
from vastrun.launcher.ui.interrupts import Interrupts, say_on
from vastrun.launcher.ui.question import Ask, Question


class Said(list[str]):
    """What was said."""

    def __call__(self, text: str) -> None:
        self.append(text)


@pytest.fixture
def said() -> Said:
    return Said()


def test_without_a_signal_there_is_no_request(said: Said) -> None:
    interrupts = Interrupts(say=said)
    with interrupts.listening():
        assert interrupts.current() is UserRequest.NONE
    assert not interrupts.interrupted


def answer(request: UserRequest | None, asked: list[Question] | None = None) -> Ask:
    """Answers each question at once."""

    def ask(question: Question, settled: Callable[[], bool]) -> UserRequest | None:
        if asked is not None:
            asked.append(question)
        return request

    return ask


def test_where_nobody_can_be_asked_ctrl_c_means_stop_and_no_other_one_costs_the_outputs(said: Said) -> None:
    interrupts = Interrupts(say=said)
    with interrupts.listening():
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
    assert interrupts.current() is UserRequest.STOP
    assert interrupts.interrupted
    assert "stopping" in said[0]
    assert "vastrun stop last --now" in said[1]


def test_a_command_may_let_go_of_the_run_at_the_first_ctrl_c(said: Said) -> None:
    interrupts = Interrupts(say=said, first=UserRequest.DETACH)
    with interrupts.listening():
        signal.raise_signal(signal.SIGINT)
    assert interrupts.current() is UserRequest.DETACH


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_whoever_only_looks_lets_go_of_the_run_whatever_the_signal_and_however_often(
    said: Said, number: signal.Signals
) -> None:
    interrupts = Interrupts(say=said, views=True)
    with interrupts.listening():
        for _ in range(3):
            signal.raise_signal(number)
    assert interrupts.current() is UserRequest.DETACH
    assert "detaching" in said[0]


def test_an_answer_that_changes_nothing_is_no_interrupt(said: Said) -> None:
    interrupts = Interrupts(say=said, ask=answer(UserRequest.NONE))
    with interrupts.listening():
        signal.raise_signal(signal.SIGINT)
        eventually(lambda: "continuing\n" in said)
    assert not interrupts.interrupted


@pytest.mark.parametrize(
    ("number", "asked"),
    [(signal.SIGTERM, UserRequest.STOP), (signal.SIGHUP, UserRequest.DETACH)],
    ids=["TERM", "HUP"],
)
def test_other_signals_have_their_requests(said: Said, number: signal.Signals, asked: UserRequest) -> None:
    interrupts = Interrupts(say=said)
    with interrupts.listening():
        signal.raise_signal(number)
    assert interrupts.current() is asked
    assert len(said) == 1


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("views", [False, True], ids=["drives", "looks"])
def test_what_is_asked_and_told_is_true_of_the_phase(phase: Phase, views: bool, said: Said) -> None:
    asked: list[Question] = []
    for request in (UserRequest.DETACH, UserRequest.STOP):
        interrupts = Interrupts(say=said, ask=answer(request, asked), views=views)
        interrupts.note_phase(phase)
        with interrupts.listening():
            signal.raise_signal(signal.SIGINT)
            eventually(lambda interrupts=interrupts: interrupts.current() is not UserRequest.NONE)

    for text in ("".join(said), *(choice.text for one in asked for choice in one.choices)):
        assert "checkpoint" not in text or phase is Phase.TRAIN
        assert "queue" not in text or phase is Phase.BOOT
        assert "outputs" not in text or phase in (Phase.TRAIN, Phase.COLLECT)
    lines = [line for one in asked for choice in one.choices for line in choice.text.split("\n")]
    assert max(map(len, lines)) <= 55


def test_a_weaker_request_never_replaces_a_stronger(said: Said) -> None:
    interrupts = Interrupts(say=said)
    with interrupts.listening():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)
    assert interrupts.current() is UserRequest.STOP


def test_a_signal_that_was_ignored_stays_ignored_and_former_handlers_come_back(said: Said) -> None:
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    before = signal.getsignal(signal.SIGINT)
    try:
        interrupts = Interrupts(say=said)
        with interrupts.listening():
            signal.raise_signal(signal.SIGHUP)
        assert interrupts.current() is UserRequest.NONE
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGHUP, former)


def test_a_wait_ends_at_once_when_a_request_comes(said: Said) -> None:
    interrupts = Interrupts(say=said)
    began = time.monotonic()
    with interrupts.listening():
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
        interrupts.sleep(600)
    assert time.monotonic() - began < LONGEST_S
    assert interrupts.current() is UserRequest.STOP


def test_a_request_that_came_ends_one_wait_only(said: Said) -> None:
    interrupts = Interrupts(say=said)
    with interrupts.listening():
        signal.raise_signal(signal.SIGTERM)
    interrupts.sleep(30)
    began = time.monotonic()
    interrupts.sleep(0.05)
    assert time.monotonic() - began >= 0.04


def test_a_wait_ends_although_a_signal_was_dealt_with_for_longer_than_it() -> None:
    def say(_: str) -> None:
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            pass

    interrupts = Interrupts(say=say, request=UserRequest.STOP)
    with interrupts.listening():
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        interrupts.sleep(0.1)
    assert interrupts.current() is UserRequest.STOP


def test_after_its_time_it_wants_to_detach(said: Said) -> None:
    assert Interrupts(say=said, until=time.time() + 60).current() is UserRequest.NONE
    late = Interrupts(say=said, until=time.time() - 1)
    assert late.timed_out
    assert late.current() is UserRequest.DETACH


def test_a_terminal_that_was_closed_does_not_stop_the_launcher() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    say_on(writer)("nobody hears this")


def asked_to_keep(interrupts: Interrupts, settled: Callable[[], bool]) -> list[KeepAnswer | None]:
    """Ask in a thread, as a launcher that drives does."""
    answers: list[KeepAnswer | None] = []
    threading.Thread(
        target=lambda: answers.append(interrupts.ask_to_keep("2 files (3.0 GB)", settled)), daemon=True
    ).start()
    return answers


def stands(question: Question, settled: Callable[[], bool]) -> Any:
    """Ask until it is settled, as at a terminal where no key is pressed."""
    while not settled():
        time.sleep(0.001)
    return question.safe.request


def test_who_drives_is_asked_what_becomes_of_files_that_are_left(said: Said) -> None:
    asked: list[Question] = []

    def ask(question: Question, settled: Callable[[], bool]) -> Any:
        asked.append(question)
        return question.choice_of("d").request  # type: ignore[union-attr]

    interrupts = Interrupts(say=said, ask=ask)
    assert interrupts.ask_to_keep("2 files (3.0 GB)", lambda: False) is KeepAnswer.DOWNLOAD
    assert "2 files (3.0 GB)" in asked[0].about
    assert [choice.key for choice in asked[0].choices] == ["d", "g", "w"]
    assert asked[0].safe.request is KeepAnswer.WAIT
    lines = [*asked[0].about.split("\n"), *(f"  d  {choice.text}" for choice in asked[0].choices)]
    assert max(map(len, lines)) <= 60


def test_without_a_terminal_nobody_is_asked_what_becomes_of_files(said: Said) -> None:
    assert Interrupts(say=said).ask_to_keep("1 file", lambda: False) is None
    assert Interrupts(say=said, ask=stands, views=True).ask_to_keep("1 file", lambda: False) is None


def test_a_ctrl_c_has_its_own_question_instead(said: Said) -> None:
    def ask(question: Question, settled: Callable[[], bool]) -> Any:
        return stands(question, settled) if question.safe.key == "w" else UserRequest.STOP

    interrupts = Interrupts(say=said, ask=ask)
    with interrupts.listening():
        answers = asked_to_keep(interrupts, lambda: False)
        signal.raise_signal(signal.SIGINT)
        eventually(lambda: bool(answers), what="an answer")
        eventually(lambda: interrupts.current() is UserRequest.STOP, what="a stop")
    assert answers in ([KeepAnswer.WAIT], [None])


def test_the_question_goes_away_when_it_is_settled(said: Said) -> None:
    settled = threading.Event()
    answers = asked_to_keep(Interrupts(say=said, ask=stands), settled.is_set)
    settled.set()
    assert eventually(lambda: answers, what="an answer") == [KeepAnswer.WAIT]
