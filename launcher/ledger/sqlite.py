"""SQLite database of a ledger on one computer."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from vastrun.launcher.core.errors import StorageError
from vastrun.launcher.ledger.database import Row, Values, state_folder_hint
from vastrun.launcher.ledger.sql import Alive, SqlLedger

BUSY_TIMEOUT_S = 10.0

_T = TypeVar("_T")


class SqliteLedger(SqlLedger):
    """The Ledger port in a SQLite file."""

    def __init__(self, path: Path, *, now: Callable[[], float], alive: Alive) -> None:
        """`alive(who)` is False only when that driver's process is known to be dead."""
        super().__init__(SqliteDatabase(path, now), where=str(path), now=now, alive=alive)


class SqliteDatabase:
    """The Database interface for a SQLite file."""

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        """`now`: this computer's clock, which all launchers of the file share."""
        self._path, self.now = path, now
        self.new_ledger_hint = f"mv {path} {path}.old"
        self._lock = threading.RLock()
        """Serializes the threads, which share one connection."""
        with self.reading():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # isolation_level=None: transactions are opened explicitly: a read and its write are one of them.
            db = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
            db.row_factory = sqlite3.Row
            _use_wal(db)
            # FULL: the row of an order must survive a power failure, or its machine would be orphaned.
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA foreign_keys = ON")
            self._db = db

    @contextmanager
    def writing(self, _: str | None) -> Iterator[None]:
        # In a notebook, Ctrl-C is an exception between any two lines, also during clean-up. A transaction
        # left open would block all other launchers' writes until the notebook ends; hence the second
        # roll-back.
        with self.reading():
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield
                self._db.execute("COMMIT")
            finally:
                try:
                    self._roll_back()
                finally:
                    self._roll_back()

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Map storage errors to StorageError with a hint."""
        try:
            with self._lock:
                yield
        except OSError as error:
            hint = state_folder_hint(self._path.parent)
            raise StorageError(f"cannot write {self._path}: {error.strerror}", hint=hint) from error
        except sqlite3.IntegrityError as error:
            raise StorageError(f"{self._path}: {error}") from error
        except sqlite3.Error as error:
            raise _storage_error(self._path, error) from error

    def execute(self, sql: str, values: Values = ()) -> object:
        return self._db.execute(sql, values)

    def execute_many(self, sql: str, values: Sequence[Values]) -> None:
        self._db.executemany(sql, values)

    def rows(self, sql: str, values: Values = ()) -> Sequence[Row]:
        return self._db.execute(sql, values).fetchall()

    def row(self, sql: str, values: Values = ()) -> Row | None:
        row: Row | None = self._db.execute(sql, values).fetchone()
        return row

    def with_retries(self, work: Callable[[], _T]) -> _T:
        return work()  # a file has no connection that could be lost

    def schema_version(self) -> int:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        return int(version)

    def set_schema_version(self, number: int) -> None:
        self._db.execute(f"PRAGMA user_version = {number:d}")

    def close(self) -> None:
        self._db.close()


def _use_wal(db: sqlite3.Connection) -> None:
    """Switch to WAL, so that readers never wait for writers. SQLite's timeout does not cover the switch."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _storage_error(path: Path, error: sqlite3.Error) -> StorageError:
    text, hint = str(error), state_folder_hint(path.parent)
    if "locked" in text:
        return StorageError(
            f"{path} has been locked by another program for over {BUSY_TIMEOUT_S:.0f} s", hint="try again"
        )
    if "full" in text:
        return StorageError(f"no space left for {path}", hint=hint)
    if "not a database" in text or "malformed" in text:
        return StorageError(f"{path} is damaged ({text})", hint=f"mv {path} {path}.damaged")
    return StorageError(f"cannot write {path}: {text}", hint=hint)
