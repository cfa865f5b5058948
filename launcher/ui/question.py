"""Questions at the terminal: one key answers, a countdown ends in the safe answer, other output waits."""

from __future__ import annotations

import math
import os
import select
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Generic, Protocol, TextIO, TypeVar

from vastrun.launcher.core import UserRequest

ANSWER_S = 15.0

Say = Callable[[str], None]
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Choice(Generic[_T]):
    """One answer."""

    key: str
    request: _T
    text: str


@dataclass(frozen=True, kw_only=True)
class Question(Generic[_T]):
    """A question with a key for each answer. Every line fits 60 columns."""

    about: str
    choices: tuple[Choice[_T], ...]
    """Choices; the last one is the safe one, for a timeout, Enter or a lost terminal."""
    again: UserRequest = UserRequest.NONE
    """Request of a further Ctrl-C while the question is open."""
    answer_s: float | None = None
    """Seconds to answer; None for the default."""

    @property
    def safe(self) -> Choice[_T]:
        """Choice that holds without an answer."""
        return self.choices[-1]

    def choice_of(self, key: str) -> Choice[_T] | None:
        """Return the choice of a key; None for another key."""
        if key in "\r\n":
            return self.safe
        return next((choice for choice in self.choices if choice.key == key.lower()), None)


class Ask(Protocol):
    """Function that asks a question."""

    def __call__(self, question: Question[_T], settled: Callable[[], bool], /) -> _T | None:
        """Ask until it is answered or `settled()` is true; return None without a terminal."""


def ask_at(terminal: int, say: Say, output: HeldStream, *, live: bool, answer_s: float = ANSWER_S) -> Ask:
    """Return a function that asks at this terminal. `live`: the countdown can be overwritten in place."""

    def ask(question: Question[_T], settled: Callable[[], bool], /) -> _T | None:
        if not _in_foreground(terminal):
            return None  # a background process that uses the terminal would be suspended
        with output.held(), _single_keys(terminal):
            lines = [f"  {choice.key}  {choice.text}" for choice in question.choices]
            say("\n" + "\n".join([question.about, *lines]) + "\n")
            choice = _answer(question, settled, time.monotonic() + (question.answer_s or answer_s))
            say("\n" if choice is None else f"{choice.key}\n")
        return question.safe.request if choice is None else choice.request

    def _answer(question: Question[_T], settled: Callable[[], bool], deadline: float) -> Choice[_T] | None:
        shown_s = None
        while not settled():
            left_s = math.ceil(deadline - time.monotonic())
            if left_s <= 0:
                return question.safe
            if left_s != shown_s and (live or shown_s is None):
                *keys, last = (choice.key for choice in question.choices)
                prompt = f"Press {', '.join(keys)} or {last} ({question.safe.key} in {left_s} s): "
                say(f"\r\x1b[K{prompt}" if live else prompt)
                shown_s = left_s
            if select.select([terminal], [], [], 0.1)[0]:
                typed = os.read(terminal, 100).decode(errors="replace")
                if not typed:
                    return question.safe  # the terminal was closed
                choices = [choice for choice in map(question.choice_of, typed) if choice is not None]
                if choices:
                    return choices[0]
        return None

    return ask


def _in_foreground(terminal: int) -> bool:
    with suppress(OSError):
        return os.tcgetpgrp(terminal) == os.getpgrp()
    return False


@contextmanager
def _single_keys(terminal: int) -> Iterator[None]:
    """Read single keys without Enter or echo; Ctrl-C is still a signal. Earlier input is dropped."""
    try:
        before = termios.tcgetattr(terminal)
        tty.setcbreak(terminal, termios.TCSAFLUSH)
    except (termios.error, OSError):
        yield
        return
    try:
        yield
    finally:
        with suppress(termios.error, OSError):
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)


class HeldStream:
    """A stream whose output can be held back during a question, in bounded amounts."""

    def __init__(self, stream: Callable[[], TextIO]) -> None:
        """`stream` is called for each write, because sys.stderr may change."""
        self._stream = stream
        self._waiting: list[str] | None = None
        self._lock = threading.Lock()
        self.holds = 0
        """Number of times that it was held."""

    @property
    def is_held(self) -> bool:
        """True while output is held back."""
        return self._waiting is not None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold back output until the block ends, then write it in order."""
        with self._lock:
            self.holds += 1
            self._waiting = []
        try:
            yield
        finally:
            with self._lock, suppress(OSError):
                text, self._waiting = "".join(self._waiting), None
                self._stream().write(text)
                self._stream().flush()

    def write(self, text: str) -> None:
        """Write the text, now or after the hold. Raises OSError if the stream is closed."""
        with self._lock:
            if self._waiting is None:
                self._stream().write(text)
            else:
                self._waiting.append(text)

    def flush(self) -> None:
        """Flush the stream, unless it is held. Raises OSError if the stream is closed."""
        with self._lock:
            if self._waiting is None:
                self._stream().flush()

    def fileno(self) -> int:
        """Return the descriptor of the stream. Raises OSError if there is none."""
        return self._stream().fileno()
