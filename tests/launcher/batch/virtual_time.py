"""Virtual time: threads of which one runs at a time, and a clock that jumps to whoever wakes next."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tests.fakes import FakeClock

_T = TypeVar("_T")


class Killed(BaseException):
    """The process was killed: nothing that it does after this has an effect."""


@dataclass(order=True)
class _Sleeper:
    wakes_at: float
    order: int
    turn: threading.Lock = field(compare=False, default_factory=threading.Lock)
    """Held until it is its turn. A lock costs a third of an event, and a test has thousands of turns."""

    def __post_init__(self) -> None:
        self.turn.acquire()


class VirtualTime(FakeClock):
    """A clock, a WakeSignal and RunThreads at once. The same program always takes the same course."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._sleepers: list[_Sleeper] = []
        self._numbers = itertools.count()
        self.kill_at = float("inf")
        """From then on whoever wakes is dead."""
        self.happens: list[tuple[float, Callable[[], None]]] = []
        """What else comes to pass, each at its moment."""

    def sleep(self, seconds: float) -> None:
        self._wait_for(self._lie_down(max(0.0, seconds)))
        self.must_live()

    def wait(self, seconds: float) -> None:
        self.sleep(seconds)

    def wake(self) -> None:
        with self._lock:
            for sleeper in self._sleepers:
                sleeper.wakes_at = self._now
            heapq.heapify(self._sleepers)

    def submit(self, work: Callable[[], _T]) -> Future[_T]:
        future: Future[_T] = Future()
        sleeper = self._lie_down(0.0, passes=False)

        def body() -> None:
            sleeper.turn.acquire()
            try:
                self.must_live()
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - as a pool of threads does
                future.set_exception(error)
            self._pass_on()

        threading.Thread(target=body, daemon=True).start()
        return future

    @contextmanager
    def workers(self) -> Iterator[Pool]:
        """Until all of the threads that it started have ended."""
        pool = Pool(self)
        yield pool
        while not pool.is_idle:
            self._wait_for(self._lie_down(1.0))

    def must_live(self) -> None:
        """Raises Killed from `kill_at` on."""
        if self._now >= self.kill_at:
            raise Killed

    def _lie_down(self, seconds: float, *, passes: bool = True) -> _Sleeper:
        with self._lock:
            sleeper = _Sleeper(self._now + seconds, next(self._numbers))
            heapq.heappush(self._sleepers, sleeper)
        if passes:
            self._pass_on()
        return sleeper

    def _pass_on(self) -> None:
        """Let whoever wakes next go on."""
        with self._lock:
            if not self._sleepers:
                return
            sleeper = heapq.heappop(self._sleepers)
            self._now = max(self._now, sleeper.wakes_at)
        due = [one for one in self.happens if one[0] <= self._now]
        self.happens = [one for one in self.happens if one[0] > self._now]
        for _, happen in due:
            happen()
        sleeper.turn.release()

    @staticmethod
    def _wait_for(sleeper: _Sleeper) -> None:
        sleeper.turn.acquire()


class Pool:
    """The RunThreads of one launcher."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self._futures: list[Future[Any]] = []

    @property
    def is_idle(self) -> bool:
        return all(future.done() for future in self._futures)

    def submit(self, work: Callable[[], _T]) -> Future[_T]:
        future = self._time.submit(work)
        # What has ended is let go: a future keeps the run that it returned.
        self._futures = [one for one in self._futures if not one.done()] + [future]
        return future
