"""Interrupts: what the user asks for by Ctrl-C or a signal, and a wait that ends when they do."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter
from queue import Empty, SimpleQueue
from types import FrameType

from launcher.model import Wish

ANSWER_S = 15.0
_QUESTION = "\n[s]top and end the machine, or [d]etach and let it train on? ({} in {:.0f} s) "
_STOPPING = "\nstopping: the training saves a checkpoint and its machine is ended. Ctrl-C again: end it now\n"
_DESTROYING = "\nending the machine now, without its outputs; wait until that is confirmed\n"
_DETACHING = "\ndetaching: the training goes on; its lease ends the machine\n"

_ANSWERS: Mapping[str, Wish | None] = {
    "s": Wish.STOP,
    "stop": Wish.STOP,
    "d": Wish.DETACH,
    "detach": Wish.DETACH,
    "": None,
}

Say = Callable[[str], None]
Ask = Callable[[], Wish]


_strength = attrgetter("strength")


class Interrupts:
    """The Wishes and the Clock port. A handler only notes the wish and rings a bell: nothing is raised."""

    def __init__(
        self,
        *,
        say: Say,
        ask: Ask | None = None,
        first: Wish = Wish.STOP,
        wish: Wish = Wish.NONE,
        until: float | None = None,
        views: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`ask` puts the question of the first Ctrl-C; without it, `first` is what that means.

        `wish` holds from the start; from the moment `until` on, at least a detach does. `views`: the command
        only looks at a run. No signal stops it then, only an answer does.
        """
        if views:
            first = Wish.DETACH
        self._views = views
        self._say, self._ask, self._first, self._wish, self._until = say, ask, first, wish, until
        self._now = now
        self._presses = 0
        # Unlike an Event's, the queue's `put` may be called by a handler that interrupted its `get`.
        self._bell: SimpleQueue[None] = SimpleQueue()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Signals become wishes in here. One that this process was told to ignore (nohup) stays ignored."""
        handlers = {signal.SIGINT: self._on_int, signal.SIGTERM: self._on_term, signal.SIGHUP: self._on_hup}
        before = {number: signal.getsignal(number) for number in handlers}
        for number, handler in handlers.items():
            if before[number] != signal.SIG_IGN:
                signal.signal(number, handler)
        try:
            yield
        finally:
            for number, former in before.items():
                signal.signal(number, former)

    def current(self) -> Wish:
        """The strongest wish so far."""
        return max(self._wish, Wish.DETACH, key=_strength) if self.timed_out else self._wish

    @property
    def timed_out(self) -> bool:
        """True from the moment `until` on."""
        return self._until is not None and self.now() >= self._until

    @property
    def interrupted(self) -> bool:
        """True after Ctrl-C."""
        return self._presses > 0

    def now(self) -> float:
        """Epoch seconds."""
        return self._now()

    def sleep(self, seconds: float) -> None:
        """Returns after `seconds`, or at once when the user asks for something."""
        try:
            self._bell.get(timeout=max(0.0, seconds))
        except Empty:
            return

    def _on_int(self, _number: int, _frame: FrameType | None) -> None:
        self._presses += 1
        if self._presses > 1:
            self._want_end(Wish.DESTROY, _DESTROYING)
        elif self._ask is None:
            self._want(self._first, _STOPPING if self._first is Wish.STOP else _DETACHING)
        else:
            threading.Thread(target=self._put_question, args=(self._ask,), daemon=True).start()

    def _on_term(self, _number: int, _frame: FrameType | None) -> None:
        self._want_end(Wish.STOP, _STOPPING)

    def _on_hup(self, _number: int, _frame: FrameType | None) -> None:
        self._want(Wish.DETACH, _DETACHING)

    def _put_question(self, ask: Ask) -> None:
        wish = ask()
        self._want(wish, _STOPPING if wish is Wish.STOP else _DETACHING)

    def _want_end(self, wish: Wish, notice: str) -> None:
        """Whoever only looks goes away instead."""
        self._want(*((Wish.DETACH, _DETACHING) if self._views else (wish, notice)))

    def _want(self, wish: Wish, notice: str) -> None:
        if wish.strength <= self._wish.strength:
            return
        self._wish = wish
        self._bell.put(None)
        self._say(notice)


def say_on(descriptor: int) -> Say:
    """Writes past Python's buffers: a handler may have interrupted a print that holds their lock."""

    def say(text: str) -> None:
        try:
            os.write(descriptor, text.encode())
        except OSError:
            return  # the terminal was closed: nobody is left to tell

    return say


def ask_on(descriptor: int, say: Say, *, otherwise: Wish = Wish.STOP, answer_s: float = ANSWER_S) -> Ask:
    """Asks at a terminal: stop or detach? `otherwise`, when there is no answer in time."""

    def ask() -> Wish:
        deadline = time.monotonic() + answer_s
        say(_QUESTION.format(otherwise.value, answer_s))
        while select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
            answer = os.read(descriptor, 100).decode(errors="replace").strip().lower()
            if answer in _ANSWERS:
                return _ANSWERS[answer] or otherwise
            say("s or d? ")
        return otherwise

    return ask
