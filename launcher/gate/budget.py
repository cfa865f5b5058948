"""ExchangeBudget: the resources left for one exchange with a machine or a service."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NoReturn

from vastrun.launcher.core.errors import BoxError
from vastrun.launcher.gate.caps import Allowance


class ExchangeBudgetError(BoxError):
    """An exchange exceeded its budget."""


class ExchangeBudget:
    """Bytes, items, seconds and memory that are left for one exchange.

    Created where the exchange begins and passed to every function that receives a part of it:

        budget = ExchangeBudget(caps.EXCHANGES["outputs"], check=remote.raise_if_stopped, now=time.monotonic)
        budget.spend(items=1)
    """

    def __init__(
        self,
        allowance: Allowance,
        *,
        check: Callable[[], None] = lambda: None,
        now: Callable[[], float],
        sender: str = "the machine",
        error: Callable[[str], Exception] = ExchangeBudgetError,
    ) -> None:
        """`check` raises when the exchange must end: the user, time or money. `now`: a clock in seconds.

        `sender`: the machine or service, for the message of `error`, which is raised when the budget is
        exceeded.
        """
        self._allowance, self._check, self._now = allowance, check, now
        self._sender, self._error = sender, error
        self._until = now() + allowance.seconds
        self._bytes, self._items, self._memory = allowance.bytes, allowance.items, allowance.memory

    def check(self) -> None:
        """Raise the error that ends the exchange. Called once an item, and in every long calculation."""
        self._check()

    def spend(self, *, size: float = 0, items: float = 0, memory: float = 0) -> None:
        """Subtract bytes that arrived, items, and bytes that stay in memory. Calls `check` first.

        Raises `error`.
        """
        self._check()
        self._bytes -= size
        self._items -= items
        self._memory -= memory
        allowance = self._allowance
        if self._bytes < 0:
            self._refuse(f"more than {allowance.bytes:.0f} bytes")
        if self._items < 0:
            self._refuse(f"more than {allowance.items:.0f} {allowance.what}")
        if self._memory < 0:
            self._refuse(f"more than {allowance.memory:.0f} bytes to be read at once")

    @property
    def spent_memory(self) -> float:
        """Bytes that were spent on memory."""
        return self._allowance.memory - self._memory

    def remaining_s(self, limit_s: float = math.inf) -> float:
        """Return the seconds left for the next request, at most `limit_s`. Calls `check` first.

        Raises `error` when no time is left.
        """
        self._check()
        if self.is_late:
            raise self._error(f"{self._sender} did not answer within {self._allowance.seconds:.0f} s")
        return min(limit_s, self._until - self._now())

    def receive(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the chunks of a response that is held in memory, after counting each. Raises `error`."""
        for chunk in chunks:
            self.remaining_s()
            self.spend(size=len(chunk), memory=len(chunk))
            yield chunk

    def _refuse(self, what: str) -> NoReturn:
        raise self._error(f"{self._sender} sent {what}")

    @property
    def is_late(self) -> bool:
        """True when no time is left. An exchange that can be continued later stops then."""
        return self._now() >= self._until
