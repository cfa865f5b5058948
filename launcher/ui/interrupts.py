"""Interrupts: requests of the user by Ctrl-C or a signal, and a sleep that they end."""

from __future__ import annotations

import os
import signal
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import FrameType

from vastrun.launcher.core import KeepAnswer, Phase, UserRequest
from vastrun.launcher.ui.question import Ask, Choice, Question, Say

_STOP_WORDS: Mapping[Phase | None, str] = {
    None: "save what was trained, destroy the machines",
    Phase.PLAN: "no machine is rented yet",
    Phase.RENT: "give up the machine that is ordered",
    Phase.BOOT: "give up the machine, or the place in the queue",
    Phase.SHIP: "destroy the machine, on which nothing was trained",
    Phase.TRAIN: "save a checkpoint, download the outputs, destroy the machine",
    Phase.COLLECT: "download the outputs, destroy the machine",
    Phase.DESTROY: "the machine is being destroyed",
    Phase.ENDED: "no other attempt is started",
}
"""What a stop does in a phase; None: in an unknown one, and for many runs at once."""
_DETACH_WORDS: Mapping[Phase | None, str] = {
    Phase.RENT: ", once an order that was sent is answered",
    Phase.BOOT: "; the place in a queue is kept",
}
"""Further effects of a detach in a phase."""
_STILL_STOPPING = "still stopping; to destroy the machine now, without its outputs: vastrun stop last --now\n"

_STOP = Choice(key="s", request=UserRequest.STOP, text="stop")
_DETACH = Choice(key="d", request=UserRequest.DETACH, text="detach")
_CONTINUE = Choice(key="c", request=UserRequest.NONE, text="continue: change nothing")

DRIVE_QUESTION = Question(
    about="Ctrl-C: what should happen to {subject}? (again: stop)",
    choices=(_STOP, _DETACH, _CONTINUE),
    again=UserRequest.STOP,
)
VIEW_QUESTION = replace(
    DRIVE_QUESTION, about="Ctrl-C: what should happen to {subject}? (again: detach)", again=UserRequest.DETACH
)
STOP_QUESTION = Question(
    about="The run is stopping.",
    choices=(
        Choice(key="x", request=UserRequest.DESTROY, text="stop now"),
        Choice(key="c", request=UserRequest.NONE, text="continue: wait until it has stopped"),
    ),
)

KEEP_QUESTION = Question(
    about="These look like weights and are only on the machine:\n{files}. What should happen?",
    choices=(
        Choice(key="d", request=KeepAnswer.DOWNLOAD, text="download all, then destroy the machine"),
        Choice(key="g", request=KeepAnswer.GIVE_BACK, text="give up the files: destroy the machine now"),
        Choice(key="w", request=KeepAnswer.WAIT, text="wait: keep the machine for a while, for vastrun pull"),
    ),
    answer_s=60.0,
)


_ANSWERS: Mapping[UserRequest, str] = {
    UserRequest.DETACH: "detaching",
    UserRequest.STOP: "stopping",
    UserRequest.DESTROY: "stopping now",
}


def answer_text(request: UserRequest, phase: Phase | None, detach_words: str = "") -> str:
    """Return the answer to a request: what it does in that phase. `detach_words`: as in `Interrupts`."""
    return f"{_ANSWERS[request]}: {_words(request, phase, detach_words)}"


def _words(request: UserRequest, phase: Phase | None, detach_words: str) -> str:
    if request is UserRequest.DESTROY and phase in (None, Phase.TRAIN, Phase.COLLECT):  # there are outputs
        return "destroy the machine now, without the rest of its outputs"
    if request is not UserRequest.DETACH:
        return _STOP_WORDS[phase]
    return detach_words or f"continue without this command{_DETACH_WORDS.get(phase, '')}"


class Interrupts:
    """The UserRequests and Clock ports: signal handlers store a request and end sleeps; they never raise."""

    def __init__(
        self,
        *,
        say: Say,
        ask: Ask | None = None,
        first: UserRequest = UserRequest.STOP,
        request: UserRequest = UserRequest.NONE,
        until: float | None = None,
        views: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`ask` asks what a Ctrl-C means; without it, the first one means `first`.

        `request` holds from the start; from epoch seconds `until` on, at least a detach holds. `views`: the
        command only shows a run, so no signal stops it, only an answer does.
        """
        self.subject = "this run"
        """Subject of the question at Ctrl-C."""
        self.phase: Phase | None = None
        """Phase of the run; None: unknown, or of several runs."""
        self.detach_words = ""
        """Effect of a detach, where its phase does not say."""
        self._views = views
        self._say, self._ask, self._request, self._until = say, ask, request, until
        self._first = UserRequest.DETACH if views else first
        self._now = now
        self.interrupted = False
        """True if Ctrl-C, or the answer to its question, has made a request."""
        self._open_question: Question[UserRequest] | None = None
        self._asking: threading.Thread | None = None
        self._terminal = threading.Lock()
        """Lock of the thread that asks on the terminal."""
        self._left = False
        # Held until a request wakes the sleeper. Unlike an Event, a signal handler may release it while it
        # interrupts the waiting thread; unlike a queue, its timeout is exact however long a handler took.
        self._wake_lock = threading.Lock()
        self._wake_lock.acquire()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Turn signals into requests until the block ends; signals ignored by nohup stay ignored."""
        on_term = UserRequest.DETACH if self._views else UserRequest.STOP
        handlers: Mapping[signal.Signals, Callable[[int, FrameType | None], None]] = {
            signal.SIGINT: self._on_int,
            signal.SIGTERM: lambda *_: self._set_request(on_term),
            signal.SIGHUP: lambda *_: self._set_request(UserRequest.DETACH),
        }
        before = {number: signal.getsignal(number) for number in handlers}
        for number, handler in handlers.items():
            # Under nohup, SIGHUP is ignored on purpose: a handler would detach a run that should continue.
            if before[number] != signal.SIG_IGN:
                signal.signal(number, handler)
        try:
            yield
        finally:
            for number, former in before.items():
                signal.signal(number, former)
            # An open question ends, and the terminal is restored.
            self._left = True
            if self._asking is not None:
                self._asking.join()
            with self._terminal:  # wait for another thread's question, too
                pass

    def current(self) -> UserRequest:
        """Return the strongest request so far."""
        return self._request.or_stronger(UserRequest.DETACH) if self.timed_out else self._request

    @property
    def timed_out(self) -> bool:
        """True from `until` on."""
        return self._until is not None and self.now() >= self._until

    def now(self) -> float:
        """Return epoch seconds."""
        return self._now()

    def sleep(self, seconds: float) -> None:
        """Return after `seconds`, or at once after a new request."""
        self._wake_lock.acquire(timeout=max(0.0, seconds))

    def ask_to_keep(self, files: str, settled: Callable[[], bool]) -> KeepAnswer | None:
        """Ask what to do with files that exist only on a machine; None without a terminal.

        A Ctrl-C replaces the question by its own; this one then counts as WAIT.
        """
        ask, before = self._ask, self._request
        if ask is None or self._views or self._left:
            return None
        answers: list[KeepAnswer | None] = []

        def over() -> bool:
            return settled() or self._left or self._request is not before or self._open_question is not None

        def put() -> None:
            with self._terminal:
                answers.append(ask(question, over))

        question = replace(KEEP_QUESTION, about=KEEP_QUESTION.about.format(files=files))
        asking = threading.Thread(target=put, daemon=True)
        asking.start()
        asking.join()
        return answers[0] if answers else None

    def _on_int(self, _number: int, _frame: FrameType | None) -> None:
        question = self._question()
        if question is None:
            return
        if self._open_question is question:
            self._answer(question.again)
        elif self._ask is None:
            self._answer_alone()
        else:
            self._open_question = question
            asked = (self._ask, question, self._request)
            self._asking = threading.Thread(target=self._ask_user, args=asked, daemon=True)
            self._asking.start()

    def note_phase(self, phase: Phase) -> None:
        """Note the phase of the run."""
        self.phase = phase

    def _shown(self, choice: Choice[UserRequest]) -> Choice[UserRequest]:
        if choice.request is UserRequest.NONE:
            return choice
        text = f"{choice.text}: {_words(choice.request, self.phase, self.detach_words)}"
        return replace(choice, text=textwrap.fill(text, 55, subsequent_indent=" " * 5))

    def _question(self) -> Question[UserRequest] | None:
        """Return the question for a Ctrl-C now; None if there is nothing left to decide."""
        if self._request is UserRequest.NONE:
            return VIEW_QUESTION if self._views else DRIVE_QUESTION
        return STOP_QUESTION if self._request is UserRequest.STOP else None

    def _answer_alone(self) -> None:
        """Answer a Ctrl-C without a terminal: the first means `first`, later ones never lose the outputs."""
        if self._request is UserRequest.STOP:
            self._say(_STILL_STOPPING)
        else:
            self._answer(self._first)

    def _ask_user(self, ask: Ask, question: Question[UserRequest], before: UserRequest) -> None:
        about = question.about.format(subject=self.subject)
        with self._terminal:  # the previous question has restored the terminal
            shown = replace(question, about=about, choices=tuple(map(self._shown, question.choices)))
            request = ask(shown, lambda: self._left or self._request is not before)
        if self._open_question is question:
            self._open_question = None
        if request is None:
            self._answer_alone()
        elif request is not UserRequest.NONE:
            self._answer(request)
        elif self._request is before and not self._left:
            self._say("continuing\n")

    def _answer(self, request: UserRequest) -> None:
        self.interrupted = self.interrupted or request is not UserRequest.NONE
        self._set_request(request)

    def _set_request(self, request: UserRequest) -> None:
        if request.strength <= self._request.strength:
            return
        self._request = request
        with suppress(RuntimeError):  # already released
            self._wake_lock.release()
        self._say(f"\n{answer_text(request, self.phase, self.detach_words)}\n")


def say_on(descriptor: int) -> Say:
    """Return a function that writes past Python's buffers, whose lock an interrupted print may hold."""

    def say(text: str) -> None:
        with suppress(OSError):  # the terminal was closed
            os.write(descriptor, text.encode())

    return say
