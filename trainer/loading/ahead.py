"""Ahead: a thread that reads the next micro-batches and puts them on the device while this one is trained."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from trainer.data.trajectories import Windows
from trainer.loading.delivery import Delivery
from trainer.loading.loader import Loader
from trainer.loading.turn import Turn


class Ahead:
    """Micro-batches by their turns, `depth` of them read before they are asked for."""

    def __init__(
        self,
        source: Loader,
        deliver: Callable[[Windows], Delivery],
        *,
        depth: int,
        accumulation: int,
        steps: int,
    ) -> None:
        self._source = source
        self._deliver = deliver
        self._depth = depth
        self._accumulation = accumulation
        self._end = Turn(steps, 0)
        self._next = Turn(0, 0)
        self._coming: deque[tuple[Turn, Future[Delivery]]] = deque()
        # One: a second would only wait for the interpreter's lock.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="loader")

    def read(self, step: int, number: int) -> Windows:
        """A micro-batch, on the device; the next ones are read meanwhile. Raises what reading it raised."""
        turn = Turn(step, number)
        if not self._coming or self._coming[0][0] != turn:
            self._begin_at(turn)
        while len(self._coming) <= self._depth and self._next < self._end:
            self._coming.append((self._next, self._thread.submit(self._fetch, self._next)))
            self._next = self._next.after(1, accumulation=self._accumulation)
        _, delivery = self._coming.popleft()
        return delivery.result().accept()

    def close(self) -> None:
        """Nothing is being read any more."""
        self._thread.shutdown(cancel_futures=True)
        self._source.close()

    def _begin_at(self, turn: Turn) -> None:
        for _, delivery in self._coming:
            delivery.cancel()
        self._coming.clear()
        self._next = turn

    def _fetch(self, turn: Turn) -> Delivery:
        return self._deliver(self._source.read(turn.step, turn.number))
