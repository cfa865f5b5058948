"""Prefetcher: a thread reads the next micro-batches and puts them on the device while this one trains."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from trainer.data.trajectories import Windows
from trainer.loading.device_transfer import DeviceTransfer
from trainer.loading.loader import Loader, Position


class Prefetcher:
    """Micro-batches by their turns, `depth` of them read before they are asked for."""

    def __init__(
        self,
        source: Loader,
        deliver: Callable[[Windows], DeviceTransfer],
        *,
        depth: int,
        accumulation: int,
        steps: int,
        begin: Callable[[], None] = lambda: None,
    ) -> None:
        """`begin` is called first of all in the thread."""
        self._source = source
        self._deliver = deliver
        self._depth = depth
        self._accumulation = accumulation
        self._end = Position(steps, 0)
        self._next = Position(0, 0)
        self._coming: deque[tuple[Position, Future[DeviceTransfer]]] = deque()
        # One: a second would only wait for the interpreter's lock.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="loader", initializer=begin)

    def read(self, step: int, number: int) -> Windows:
        """Return a micro-batch, on the device; the next ones are read meanwhile.

        Raises what reading it raised.
        """
        position = Position(step, number)
        if not self._coming or self._coming[0][0] != position:
            self._begin_at(position)
        while len(self._coming) <= self._depth and self._next < self._end:
            self._coming.append((self._next, self._thread.submit(self._fetch, self._next)))
            self._next = self._next.after(1, accumulation=self._accumulation)
        _, transfer = self._coming.popleft()
        return transfer.result().accept()

    def close(self) -> None:
        """Wait until nothing is being read any more."""
        self._thread.shutdown(cancel_futures=True)
        self._source.close()

    def _begin_at(self, position: Position) -> None:
        for _, transfer in self._coming:
            transfer.cancel()
        self._coming.clear()
        self._next = position

    def _fetch(self, position: Position) -> DeviceTransfer:
        return self._deliver(self._source.read(position.step, position.number))
