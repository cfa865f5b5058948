"""What the launchers of one user, or of a team, share besides the ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

_T = TypeVar("_T")


class CallBook(Protocol):
    """Who calls when: a text an endpoint, for all who must keep one pace. Raises StorageError."""

    def change(self, endpoint: str, work: Callable[[str, float], tuple[str, _T]]) -> _T:
        """Give `work` the endpoint's text, empty at first, and the time; keep the text that it returns.

        One after the other. The time is the same clock's for all. Returns what `work` does besides.
        """
        ...


class SecretStore(Protocol):
    """Secrets that each computer of a team can read. Raises StorageError; UsageError with a wrong key."""

    def put(self, name: str, secret: bytes) -> bytes:
        """Keep the secret and return it; where there is one of that name, return that and change nothing."""
        ...

    def replace(self, name: str, secret: bytes) -> None:
        """Keep the secret in place of what has that name."""
        ...

    def get(self, name: str) -> bytes | None:
        """Return the secret; None where there is none of that name."""
        ...

    def remove(self, name: str) -> None:
        """Forget the secret."""
        ...
