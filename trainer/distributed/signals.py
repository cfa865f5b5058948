"""Signals: handle SIGTERM, which asks a rank to save and exit, in a thread: a handler would wait for C++."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from vastrun.contract.stop_budget import RANK_MIN_S, RANK_S, RANK_SAVING_S


class StopSignal:
    """Tells whether this rank was asked to stop, and kills it when it does not exit in time."""

    def __init__(
        self, abort: Callable[[], None], *, min_s: float, grace_s: float, saving_grace_s: float
    ) -> None:
        self.step_s: float | None = None
        """Seconds of a step; None: unknown, for instance while the rank compiles or evaluates."""
        self._abort = abort
        self._min_s = min_s
        self._grace_s = grace_s
        self._saving_grace_s = saving_grace_s
        self._asked = threading.Event()
        self._saving = False
        self._saved_at = -math.inf

    @classmethod
    def watch(
        cls,
        abort: Callable[[], None],
        *,
        min_s: float = RANK_MIN_S,
        grace_s: float = RANK_S,
        saving_grace_s: float = RANK_SAVING_S,
    ) -> Self:
        """Block SIGTERM and wait for it in a thread. Call this before other threads start, which inherit it.

        If the rank does not exit in time, that thread calls `abort`, which must end the process. The times
        are seconds from SIGTERM: see `contract/stop_budget.py`.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        watcher = cls(abort, min_s=min_s, grace_s=grace_s, saving_grace_s=saving_grace_s)
        # A daemon: a rank that finishes does not wait for a signal that never comes.
        threading.Thread(target=watcher._wait, name="sigterm", daemon=True).start()
        return watcher

    @property
    def asked(self) -> bool:
        """Tell whether SIGTERM was received."""
        return self._asked.is_set()

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Allow more time for a checkpoint within the context, and the usual time after it."""
        self._saving = True
        try:
            yield
        finally:
            self._saved_at = time.monotonic()
            self._saving = False

    def _wait(self) -> None:
        signal.sigwait({signal.SIGTERM})
        self._asked.set()
        asked_at = time.monotonic()
        while time.monotonic() < self._deadline(asked_at):
            time.sleep(0.1)
        self._abort()

    def _deadline(self, asked_at: float) -> float:
        # Computed at each poll, since `step_s` and saving change during the stop.
        if self._saving:
            return asked_at + self._saving_grace_s
        # A rank still in its step after twice the usual time waits in a collective for ranks that are gone.
        usual_s = math.inf if self.step_s is None else self._min_s + 2 * self.step_s
        # A rank that has just saved still has to exit.
        return max(asked_at, self._saved_at) + min(self._grace_s, usual_s)
