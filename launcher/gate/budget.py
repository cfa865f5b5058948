"""ExchangeBudget: what one exchange with a machine or a service may still take. More is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NoReturn

from vastrun.launcher.core.errors import BoxError
from vastrun.launcher.gate.caps import Allowance


class ExchangeBudgetError(BoxError):
    """An exchange took more than its budget."""


class ExchangeBudget:
    """The bytes, items, seconds and memory that are left for one exchange.

    It is created where the exchange begins and passed down to whatever takes something in it:

        budget = ExchangeBudget(caps.EXCHANGES["outputs"], check=remote.must_go_on, now=time.monotonic)
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
        """`check` raises when the user, time or money ends the exchange. `now`: a clock in seconds.

        `sender`: whose answers are counted, for the message of `error`, which is raised for too much.
        """
        self._allowance, self._check, self._now = allowance, check, now
        self._sender, self._error = sender, error
        self._until = now() + allowance.seconds
        self._bytes, self._items, self._memory = allowance.bytes, allowance.items, allowance.memory

    def check(self) -> None:
        """Raise what ends the exchange. Called at least once for each item, and in every long calculation."""
        self._check()

    def spend(self, *, size: float = 0, items: float = 0, memory: float = 0) -> None:
        """Take bytes that arrived, items, and bytes that stay in memory. Checks first.

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
        """Bytes that stay in memory so far."""
        return self._allowance.memory - self._memory

    def remaining_s(self, limit_s: float = math.inf) -> float:
        """Return the seconds that are left, or `limit_s`: the timeout of what is asked next. Checks first.

        Raises `error` once there are none.
        """
        self._check()
        if self.is_late:
            raise self._error(f"{self._sender} did not answer within {self._allowance.seconds:.0f} s")
        return min(limit_s, self._until - self._now())

    def receive(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the chunks of an answer that is kept in memory, each paid for. Raises `error`."""
        for chunk in chunks:
            self.remaining_s()
            self.spend(size=len(chunk), memory=len(chunk))
            yield chunk

    def _refuse(self, what: str) -> NoReturn:
        raise self._error(f"{self._sender} sent {what}")

    @property
    def is_late(self) -> bool:
        """True once its seconds are over: an exchange that can be continued later stops then."""
        return self._now() >= self._until
