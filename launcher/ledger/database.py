"""What a ledger needs of its database: one SQL for SQLite and PostgreSQL, and a transaction for each call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

Row = Mapping[str, Any]
Values = Sequence[Any] | Mapping[str, Any]

_T = TypeVar("_T")
_P = ParamSpec("_P")


class Database(Protocol):
    """One connection or several to one database, for all threads of a process.

    Statements are SQL that SQLite and PostgreSQL both understand, with `?` or `:name` for values; types and
    what else differs stands in the table of `postgres.py`.
    """

    new_ledger_hint: str
    """How to begin a new ledger where this one cannot be used."""

    def now(self) -> float:
        """Return epoch seconds by the one clock that tells all launchers when a lock ends."""
        ...

    def reading(self) -> AbstractContextManager[None]:
        """Let this thread read within."""
        ...

    def writing(self, lock: str | None) -> AbstractContextManager[None]:
        """Make what is done within one transaction.

        Of those with the same `lock` one goes on at a time; one with None keeps all others from writing runs.
        """
        ...

    def execute(self, sql: str, values: Values = (), /) -> object:
        """Run one statement."""
        ...

    def many(self, sql: str, values: Sequence[Values], /) -> None:
        """Run one statement for each of the values."""
        ...

    def rows(self, sql: str, values: Values = (), /) -> Sequence[Row]:
        """Return what a query finds."""
        ...

    def row(self, sql: str, values: Values = (), /) -> Row | None:
        """Return the first row that a query finds."""
        ...

    def retried(self, work: Callable[[], _T], /) -> _T:
        """Do the work, again where the connection was lost before it was done. Raises StorageError."""
        ...

    def schema(self) -> int:
        """Return the version of its tables; 0: it has none."""
        ...

    def set_schema(self, number: int) -> None:
        """Note the version of its tables."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class _Uses(Protocol):
    _db: Database


_S = TypeVar("_S", bound=_Uses)


def retried(method: Callable[Concatenate[_S, _P], _T]) -> Callable[Concatenate[_S, _P], _T]:
    """Make a method one piece of work that its database may do again after it lost the connection."""

    def call(self: _S, /, *arguments: _P.args, **named: _P.kwargs) -> _T:
        return self._db.retried(lambda: method(self, *arguments, **named))

    update_wrapper(call, method)
    return call
