"""Signals: SIGTERM asks a rank to save and end. A thread takes it, as a handler waits while C++ runs."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vastrun.contract.stop_budget import RANK_MIN_S, RANK_S, RANK_SAVING_S

_LOOK_EVERY_S = 0.1


class StopSignal:
    """Tells whether this rank was asked to stop, and ends it when it does not end by itself in time."""

    def __init__(
        self, give_up: Callable[[], None], *, least_s: float, grace_s: float, saving_grace_s: float
    ) -> None:
        self.step_s: float | None = None
        """Seconds that a step takes; None: not known, as while the rank compiles or evaluates."""
        self._give_up = give_up
        self._least_s = least_s
        self._grace_s = grace_s
        self._saving_grace_s = saving_grace_s
        self._asked = threading.Event()
        self._saving = False
        self._saved_at = -math.inf

    @classmethod
    def watch(
        cls,
        give_up: Callable[[], None],
        *,
        least_s: float = RANK_MIN_S,
        grace_s: float = RANK_S,
        saving_grace_s: float = RANK_SAVING_S,
    ) -> StopSignal:
        """Block SIGTERM and wait for it in a thread. Call this before other threads start: they inherit this.

        When the rank has not ended in time, that thread calls `give_up`, which must end the process. The
        times are seconds from SIGTERM: see `contract/stop_budget.py`.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        observed = cls(give_up, least_s=least_s, grace_s=grace_s, saving_grace_s=saving_grace_s)
        # A daemon: a rank that ends by itself does not wait for a signal that never comes.
        threading.Thread(target=observed._wait, name="sigterm", daemon=True).start()
        return observed

    @property
    def asked(self) -> bool:
        """Tell whether SIGTERM has come."""
        return self._asked.is_set()

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Allow more time while a checkpoint is written within, and the usual time from its end on."""
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
            time.sleep(_LOOK_EVERY_S)
        self._give_up()

    def _deadline(self, asked_at: float) -> float:
        # Asked again at each look, since `step_s` and saving change while the rank comes to its end.
        if self._saving:
            return asked_at + self._saving_grace_s
        # A rank still in its step after twice a step's time waits in a collective for ranks that are gone.
        usual_s = math.inf if self.step_s is None else self._least_s + 2 * self.step_s
        # A rank that has just saved still has to leave.
        return max(asked_at, self._saved_at) + min(self._grace_s, usual_s)
