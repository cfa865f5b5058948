"""ExchangeBudget: what one exchange with a machine may still take. Whoever takes more is refused."""

from __future__ import annotations

from collections.abc import Callable

from launcher.core.errors import BoxError
from launcher.gate.caps import Allowance


class ExchangeBudgetError(BoxError):
    """An exchange took more than its budget."""


def _no_check() -> None:
    """Do nothing: the exchange has no run whose limits could end it."""


class ExchangeBudget:
    """The bytes, items, seconds and memory that are left for one exchange.

    It is created where the exchange begins and passed down to whatever takes something in it:

        budget = ExchangeBudget(caps.EXCHANGES["outputs"], check=remote.must_go_on, now=time.monotonic)
        budget.spend(items=1)
    """

    def __init__(
        self, allowance: Allowance, *, check: Callable[[], None] = _no_check, now: Callable[[], float]
    ) -> None:
        """`check` raises when the user, time or money ends the exchange. `now`: a clock in seconds."""
        self._allowance, self._check, self._now = allowance, check, now
        self._until = now() + allowance.seconds
        self._bytes, self._items, self._memory = allowance.bytes, allowance.items, allowance.memory

    def check(self) -> None:
        """Raise what ends the exchange. Called at least once for each item, and in every long calculation."""
        self._check()

    def spend(self, *, size: float = 0, items: float = 0, memory: float = 0) -> None:
        """Take bytes that arrived, items, and bytes that stay in memory. Checks first.

        Raises ExchangeBudgetError.
        """
        self._check()
        self._bytes -= size
        self._items -= items
        self._memory -= memory
        if self._bytes < 0:
            raise ExchangeBudgetError(f"the machine sent more than {self._allowance.bytes:.0f} bytes")
        if self._items < 0:
            raise ExchangeBudgetError(f"the machine sent more than {self._allowance.items:.0f} files")
        if self._memory < 0:
            raise ExchangeBudgetError(
                f"the machine sent more than {self._allowance.memory:.0f} bytes to be read at once"
            )

    @property
    def is_late(self) -> bool:
        """True once its seconds are over: an exchange that can be continued later stops then."""
        return self._now() >= self._until
