"""SIGTERM means save and leave. A thread takes it: a handler would wait while the main thread is in C++."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trainer.contract.stop_budget import RANK_LEAST_S, RANK_S, RANK_SAVING_S

_LOOK_EVERY_S = 0.1


class StopSignal:
    """Whether somebody asked this rank to stop. If the rank cannot, it is ended after a grace."""

    def __init__(
        self, give_up: Callable[[], None], *, least_s: float, grace_s: float, saving_grace_s: float
    ) -> None:
        self.step_s: float | None = None
        """How long a step takes; None: nobody knows, as while it compiles or evaluates."""
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
        least_s: float = RANK_LEAST_S,
        grace_s: float = RANK_S,
        saving_grace_s: float = RANK_SAVING_S,
    ) -> StopSignal:
        """Blocks SIGTERM and waits for it in a thread. Call before other threads begin: they inherit this.

        `give_up` is called when the rank is still there after the grace; it must end the process.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        wish = cls(give_up, least_s=least_s, grace_s=grace_s, saving_grace_s=saving_grace_s)
        threading.Thread(target=wish._wait, name="sigterm", daemon=True).start()
        return wish

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    @contextmanager
    def saving(self) -> Iterator[None]:
        """A checkpoint is being written meanwhile: the grace is longer, and the usual one follows its end."""
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
        if self._saving:
            return asked_at + self._saving_grace_s
        usual_s = math.inf if self.step_s is None else self._least_s + 2 * self.step_s
        # A rank that has just saved still has to leave.
        return max(asked_at, self._saved_at) + min(self._grace_s, usual_s)
