"""Interrupts: what the user asked for by Ctrl-C or a signal, and a wait that ends when they do."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from operator import attrgetter
from types import FrameType
from typing import Protocol

from vastrun.launcher.core import KeepAnswer, UserRequest
from vastrun.launcher.ui.question import Ask, Choice, Question, Say

_SAID: Mapping[UserRequest, str] = {
    UserRequest.NONE: "continuing\n",
    UserRequest.DETACH: "detaching: the training goes on, and the lease on the machine limits its time\n",
    UserRequest.STOP: "stopping: save a checkpoint, download the outputs, destroy the machine\n",
    UserRequest.DESTROY: "destroying the machine now, without downloading its outputs\n",
}
_STILL_STOPPING = "still stopping; to destroy the machine now, without its outputs: vastrun stop last --now\n"

_STOP = Choice(
    key="s",
    request=UserRequest.STOP,
    text="stop: save a checkpoint, download the outputs,\n     destroy the machine",
)
_DETACH = Choice(key="d", request=UserRequest.DETACH, text="detach: keep training without this launcher")
_CONTINUE = Choice(key="c", request=UserRequest.NONE, text="continue: change nothing")

DRIVES = Question(
    about="Ctrl-C: what should happen to {subject}? (again: stop)",
    choices=(_STOP, _DETACH, _CONTINUE),
    again=UserRequest.STOP,
)
VIEWS = replace(
    DRIVES, about="Ctrl-C: what should happen to {subject}? (again: detach)", again=UserRequest.DETACH
)
STOPS = Question(
    about="The run is stopping, its outputs are not complete yet.",
    choices=(
        Choice(key="x", request=UserRequest.DESTROY, text="destroy the machine now, without its outputs"),
        Choice(key="c", request=UserRequest.NONE, text="continue: wait for the outputs"),
    ),
)

KEEPS = Question(
    about="These look like weights and are only on the machine:\n{files}. What should happen?",
    choices=(
        Choice(key="d", request=KeepAnswer.DOWNLOAD, text="download all, then give the machine back"),
        Choice(key="g", request=KeepAnswer.GIVE_BACK, text="give the machine back now, without them"),
        Choice(key="w", request=KeepAnswer.WAIT, text="wait: keep it for a while, for vastrun pull"),
    ),
    answer_s=60.0,
)


_strength = attrgetter("strength")


class Interrupts:
    """The UserRequests and the Clock port. A handler notes a request and wakes the run; nothing is raised."""

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
        """`ask` puts the question of a Ctrl-C; without it, `first` is what the first one means.

        `request` holds from the start; from the moment `until` on, at least a detach does. `views`: the
        command only looks at a run. No signal stops it then, only an answer does.
        """
        self.subject = "this run"
        """What the question of a Ctrl-C is about."""
        self._views = views
        self._say, self._ask, self._request, self._until = say, ask, request, until
        self._first = UserRequest.DETACH if views else first
        self._now = now
        self._interrupted = False
        self._asked: Question[UserRequest] | None = None
        self._asking: threading.Thread | None = None
        self._terminal = threading.Lock()
        """Held by the thread whose question is on the terminal."""
        self._left = False
        # Held while nobody rings. Unlike an Event, a handler may release it that interrupts who waits for it;
        # unlike the wait for a queue, that for a lock ends in time however long a handler took.
        self._bell = threading.Lock()
        self._bell.acquire()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Turn signals within into requests.

        One that this process was told to ignore (nohup) stays ignored.
        """
        handlers = {signal.SIGINT: self._on_int, signal.SIGTERM: self._on_term, signal.SIGHUP: self._on_hup}
        before = {number: signal.getsignal(number) for number in handlers}
        for number, handler in handlers.items():
            # Under nohup SIGHUP is ignored on purpose: to handle it would end what should go on.
            if before[number] != signal.SIG_IGN:
                signal.signal(number, handler)
        try:
            yield
        finally:
            for number, former in before.items():
                signal.signal(number, former)
            self._leave()

    def current(self) -> UserRequest:
        """Return the strongest request so far."""
        return max(self._request, UserRequest.DETACH, key=_strength) if self.timed_out else self._request

    @property
    def timed_out(self) -> bool:
        """True from the moment `until` on."""
        return self._until is not None and self.now() >= self._until

    @property
    def interrupted(self) -> bool:
        """True when Ctrl-C, or the answer to its question, has asked for something."""
        return self._interrupted

    def now(self) -> float:
        """Return the epoch seconds."""
        return self._now()

    def sleep(self, seconds: float) -> None:
        """Return after `seconds`, or at once when the user asked for something."""
        self._bell.acquire(timeout=max(0.0, seconds))

    def ask_to_keep(self, files: str, settled: Callable[[], bool]) -> KeepAnswer | None:
        """Ask what becomes of files that are left on a machine; None: there is no terminal.

        A Ctrl-C has its own question instead, and then this one counts as WAIT.
        """
        ask, before = self._ask, self._request
        if ask is None or self._views or self._left:
            return None
        answers: list[KeepAnswer | None] = []

        def over() -> bool:
            return settled() or self._left or self._request is not before or self._asked is not None

        def put() -> None:
            with self._terminal:
                answers.append(ask(question, over))

        question = replace(KEEPS, about=KEEPS.about.format(files=files))
        asking = threading.Thread(target=put, daemon=True)
        asking.start()
        asking.join()
        return answers[0] if answers else None

    def _on_int(self, _number: int, _frame: FrameType | None) -> None:
        question = self._question()
        if self._asked is not None and self._asked is question:
            self._answer(question.again)
            return
        if question is None:
            return
        if self._ask is None:
            self._answer_alone()
            return
        self._asked = question
        self._asking = threading.Thread(
            target=self._put, args=(self._ask, question, self._request), daemon=True
        )
        self._asking.start()

    def _question(self) -> Question[UserRequest] | None:
        """What Ctrl-C asks now; None where nothing is left to be decided."""
        if self._request is UserRequest.NONE:
            return VIEWS if self._views else DRIVES
        return STOPS if self._request is UserRequest.STOP else None

    def _answer_alone(self) -> None:
        """Nobody can be asked: the first Ctrl-C has its meaning, and no other one costs the outputs."""
        if self._request is UserRequest.STOP:
            self._say(_STILL_STOPPING)
        else:
            self._answer(self._first)

    def _put(self, ask: Ask, question: Question[UserRequest], before: UserRequest) -> None:
        about = question.about.format(subject=self.subject)
        with self._terminal:  # the question before this one has left the terminal as it was
            request = ask(replace(question, about=about), lambda: self._left or self._request is not before)
        if self._asked is question:
            self._asked = None
        if request is None:
            self._answer_alone()
        elif request is not UserRequest.NONE:
            self._answer(request)
        elif self._request is before and not self._left:
            self._say(_SAID[UserRequest.NONE])

    def _answer(self, request: UserRequest) -> None:
        self._interrupted = self._interrupted or request is not UserRequest.NONE
        self._want(request)

    def _leave(self) -> None:
        """The question, if one stands, goes away, and the terminal is as it was."""
        self._left = True
        if self._asking is not None:
            self._asking.join()
        with self._terminal:  # of another thread's question nothing is left either
            pass

    def _on_term(self, _number: int, _frame: FrameType | None) -> None:
        self._want(UserRequest.DETACH if self._views else UserRequest.STOP)

    def _on_hup(self, _number: int, _frame: FrameType | None) -> None:
        self._want(UserRequest.DETACH)

    def _want(self, request: UserRequest) -> None:
        if request.strength <= self._request.strength:
            return
        self._request = request
        with suppress(RuntimeError):  # it rings already
            self._bell.release()
        self._say("\n" + _SAID[request])


class MakeInterrupts(Protocol):
    """Makes what notes the signals of a command, as `Interrupts`; `first` of NONE: ask."""

    def __call__(
        self,
        first: UserRequest = UserRequest.STOP,
        request: UserRequest = UserRequest.NONE,
        until: float | None = None,
        views: bool = False,
    ) -> Interrupts: ...


def say_on(descriptor: int) -> Say:
    """Make what writes past Python's buffers: a handler may interrupt a print that holds their lock."""

    def say(text: str) -> None:
        try:
            os.write(descriptor, text.encode())
        except OSError:
            return  # the terminal was closed: nobody is left to tell

    return say
