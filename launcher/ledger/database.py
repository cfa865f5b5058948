"""Database interface of the ledger: one SQL for SQLite and PostgreSQL, and a transaction for each call."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import update_wrapper
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from vastrun.launcher.core.errors import UnsignedError

Row = Mapping[str, Any]
Values = Sequence[Any] | Mapping[str, Any]

_T = TypeVar("_T")
_P = ParamSpec("_P")


def state_folder_hint(folder: Path) -> str:
    """Return advice where the state folder takes no writes. Its ledger may know machines that are rented, and
    a command with another state folder would not find them."""
    if os.path.exists(folder / "ledger.db"):  # noqa: PTH110 - Path.exists raises where nothing may be read
        return f"free some space, or make {folder} writable"
    return "XDG_STATE_HOME=/somewhere/writable vastrun ..."


class Database(Protocol):
    """Connections of one process, shared by its threads, to one database.

    Statements are SQLite's SQL, with `?` or `:name` for values; a table in `postgres.py` translates types and
    other differences.
    """

    new_ledger_hint: str
    """Command that starts a new ledger when this one cannot be used."""

    def now(self) -> float:
        """Return epoch seconds by the clock that decides for all launchers when a lock expires."""

    def reading(self) -> AbstractContextManager[None]:
        """Open a context in which this thread may read."""

    def writing(self, lock: str | None) -> AbstractContextManager[None]:
        """Open a context that is one transaction.

        Transactions with the same `lock` run one after the other; None excludes all other writers of runs.
        """

    def execute(self, sql: str, values: Values = (), /) -> object:
        """Run one statement."""

    def execute_many(self, sql: str, values: Sequence[Values], /) -> None:
        """Run the statement once for each item of `values`."""

    def rows(self, sql: str, values: Values = (), /) -> Sequence[Row]:
        """Return the rows of a query."""

    def row(self, sql: str, values: Values = (), /) -> Row | None:
        """Return the first row of a query; None when there is none."""

    def with_retries(self, work: Callable[[], _T], /) -> _T:
        """Do the work; repeat it when the connection was lost before it was complete. Raises StorageError."""

    def schema_version(self) -> int:
        """Return the version of the tables; 0 when there are none."""

    def set_schema_version(self, number: int) -> None:
        """Store the version of the tables."""

    def close(self) -> None:
        """Close the connections."""


def insert_statement(table: str, columns: Iterable[str]) -> str:
    """Return the statement that writes a row with these columns."""
    names = tuple(columns)
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(f':{name}' for name in names)})"


def assignments(columns: Iterable[str]) -> str:
    """Return the part of a statement that sets these columns."""
    return ", ".join(f"{name} = :{name}" for name in columns)


class _HasDatabase(Protocol):
    @property
    def _db(self) -> Database: ...


_S = TypeVar("_S", bound=_HasDatabase)


def with_retries(method: Callable[Concatenate[_S, _P], _T]) -> Callable[Concatenate[_S, _P], _T]:
    """Decorate a method that its database may repeat after a lost connection."""

    def call(self: _S, /, *arguments: _P.args, **named: _P.kwargs) -> _T:
        return self._db.with_retries(lambda: method(self, *arguments, **named))

    update_wrapper(call, method)
    return call


class RowForm:
    """Form of a ledger's rows: what is added to them, and which of them a driver takes.

    Of a SQLite file nothing is added, and all are taken: a program that can write to a user's own file can
    change that user's programs, too.
    """

    shows_all = False
    """True where rows are only shown; False where a driver acts by them."""

    def columns(self, needed: str) -> str:
        """Return the columns to read so that rows can be verified."""
        return needed

    def sign(self, _table: str, row: Row, /) -> dict[str, Any]:
        """Return the row as it is written."""
        return dict(row)

    def verify(self, _table: str, row: Row, _own: bool = False, /) -> Row | None:
        """Return the row as a driver may act by it; None: it may not.

        The last argument: only this computer's signature counts.
        """
        return row

    def is_here(self, _computer: str, /) -> bool:
        """Return whether that is this computer's name."""
        return True

    def error(self, name: str, _computer: str, command: str, /) -> UnsignedError:
        """Return the error for a row that is only shown; `command` continues it at that computer."""
        return UnsignedError(f"{name} is not signed", hint=command)
