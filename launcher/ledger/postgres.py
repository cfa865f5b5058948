"""The ledger of a team: a PostgreSQL database that all of its computers reach."""

from __future__ import annotations

import queue
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import DictRow, dict_row

from vastrun.launcher.core.errors import StorageError, UsageError
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.budget import ExchangeBudget
from vastrun.launcher.gate.caps import Allowance
from vastrun.launcher.ledger.database import Row, Values

RETRY_S = 60.0
"""So long a database may be away, as while it restarts, before what was asked of it fails."""
_PAUSE_S = 0.5
_CELL_BYTES = 64
_MOST_CONNECTIONS = 4
"""Of one process. What its threads ask beyond that waits for a moment."""
_CROWDED_S = 30.0
_JOBS_S = 30 * 86_400.0
"""So long code and secrets are kept for the retries of a run."""
_KEPT_S = 3600.0
"""So long a finished transaction is remembered: its launcher asks for it at once or never."""

_USUAL = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "tcp_user_timeout": 30_000,
    "fallback_application_name": "vastrun",
}
"""Where the URL does not say otherwise. Seconds; milliseconds only `tcp_user_timeout`."""
_SESSION = (
    "SET statement_timeout = '30s'; SET lock_timeout = '30s';"
    # A launcher that is suspended within a transaction must not keep the others from writing.
    " SET idle_in_transaction_session_timeout = '10s'"
)

_WORDS: Sequence[tuple[str, str]] = (
    (r"\bREAL\b", "DOUBLE PRECISION"),  # six digits are what PostgreSQL calls REAL: no time fits
    (r"\bnumber INTEGER PRIMARY KEY\b", "number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),
    (r"\bINTEGER\b", "BIGINT"),
    # SQLite counts rows by itself. It is the order in which they were written.
    (r"\bCREATE TABLE runs \(", "CREATE TABLE runs (rowid BIGINT GENERATED ALWAYS AS IDENTITY,"),
    (r"%", "%%"),
    (r"(?<![:\w]):([a-z_]+)", r"%(\1)s"),
    (r"\?", "%s"),
)
"""What is SQLite's own in our SQL, and what it is in PostgreSQL, in this order."""

_OWN_TABLES = (
    "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS transactions (token TEXT PRIMARY KEY, at DOUBLE PRECISION NOT NULL)",
    "CREATE TABLE IF NOT EXISTS launchers (who TEXT PRIMARY KEY, until DOUBLE PRECISION NOT NULL)",
    "CREATE TABLE IF NOT EXISTS call_queues (key TEXT NOT NULL, endpoint TEXT NOT NULL, queue TEXT NOT NULL,"
    " PRIMARY KEY (key, endpoint))",
    "CREATE TABLE IF NOT EXISTS team_secrets (name TEXT PRIMARY KEY, sealed BYTEA NOT NULL,"
    " at DOUBLE PRECISION NOT NULL)",
)
"""What a ledger of one computer has in files, or needs not."""
_NOW = "SELECT EXTRACT(EPOCH FROM clock_timestamp())::DOUBLE PRECISION AS now"

_T = TypeVar("_T")
Connection = psycopg.Connection[DictRow]


class PostgresDatabase:
    """One database. `Database` says what each verb promises.

    Transactions are READ COMMITTED and begin with their lock: each statement after it sees all that was
    committed before. What is locked as a whole is the table `runs`, against writers only.
    """

    new_ledger_hint = "VASTRUN_LEDGER=postgresql://me@db.lab/another_database vastrun …"

    def __init__(
        self,
        url: str,
        *,
        sleep: Callable[[float], None] = time.sleep,
        elapsed: Callable[[], float] = time.monotonic,
        retry_s: float = RETRY_S,
        allowance: Allowance = caps.EXCHANGES["ledger"],
    ) -> None:
        """`allowance`: of each answer. Raises UsageError when `url` is none, StorageError when there is no
        such database.
        """
        self._url, self._sleep, self._elapsed = url, sleep, elapsed
        self._allowance = allowance
        self._options = _options(url)
        self.where = (
            f"the database {self._options.get('dbname', '')} on {self._options.get('host', 'this computer')}"
        )
        """Without user and password."""
        self._free: queue.LifoQueue[Connection | None] = queue.LifoQueue()
        for _ in range(_MOST_CONNECTIONS):
            self._free.put(None)
        self._used = threading.local()
        self._retry_s = 0.0
        self.retried(self._make_own_tables)  # one that cannot be reached at all is said at once
        self._retry_s = retry_s

    def now(self) -> float:
        row = self.row(_NOW)
        assert row is not None
        return float(row["now"])

    def time(self) -> float:
        """Return the same, outside of reading() and writing(), too. Raises StorageError."""

        def look() -> float:
            with self.reading():
                return self.now()

        return self.retried(look)

    @contextmanager
    def reading(self) -> Iterator[None]:
        with self._connection():
            yield

    @contextmanager
    def writing(self, lock: str | None) -> Iterator[None]:
        token = secrets.token_hex(16)
        with self._connection() as connection:
            try:
                connection.execute(*_beginning(lock))
                yield
                self._commit(connection, token)
            finally:
                _roll_back(connection)

    def _commit(self, connection: Connection, token: str) -> None:
        """Without an answer to COMMIT nobody knows what came of it: the token that went with it tells."""
        try:
            connection.execute(_COMMIT, {"token": token})
        except psycopg.OperationalError as error:
            connection.close()
            said_no = error.sqlstate is not None and not error.sqlstate.startswith(("08", "57P"))
            if said_no or not self._again(lambda: self._is_done(token)):
                raise

    def _is_done(self, token: str) -> bool:
        """Whether the transaction of that token took effect. Waits while that is not decided; then it is."""
        with self._connect() as fresh:
            return fresh.execute(_IS_FREE, {"token": token}).fetchone() is None

    def execute(self, sql: str, values: Values = ()) -> object:
        return self._connected().execute(_translated(sql), _bound(values))

    def many(self, sql: str, values: Sequence[Values]) -> None:
        with self._connected().cursor() as cursor:
            cursor.executemany(_translated(sql), [_bound(one) for one in values])

    def rows(self, sql: str, values: Values = ()) -> Sequence[Row]:
        budget = ExchangeBudget(self._allowance, now=self._elapsed, sender=self.where, error=StorageError)
        rows: list[Row] = []
        with self._connected().cursor() as cursor:
            for row in cursor.stream(_translated(sql), _bound(values)):
                budget.spend(items=1, memory=sum(map(_memory_of, row.values())))
                rows.append(row)
        return rows

    def row(self, sql: str, values: Values = ()) -> Row | None:
        return next(iter(self.rows(sql, values)), None)

    def retried(self, work: Callable[[], _T]) -> _T:
        if self._in_use() is not None:
            return work()  # within another method, which is done again as a whole
        try:
            return self._again(work)
        except psycopg.Error as error:
            raise self._storage_error(error) from error

    def _again(self, work: Callable[[], _T]) -> _T:
        until = self._elapsed() + self._retry_s
        while True:
            try:
                return work()
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                if not _may_pass(error) or self._elapsed() >= until:
                    raise
            self._sleep(_PAUSE_S)

    def schema(self) -> int:
        row = self.row("SELECT version FROM schema_version")
        return 0 if row is None else int(row["version"])

    def set_schema(self, number: int) -> None:
        self.execute("DELETE FROM schema_version")
        self.execute("INSERT INTO schema_version (version) VALUES (?)", (number,))

    def close(self) -> None:
        with suppress(queue.Empty):
            while True:
                connection = self._free.get_nowait()
                if connection is not None:
                    connection.close()

    def tidy(self) -> None:
        """Forget what nobody asks for any more."""
        with self.reading():
            now = self.now()
            self.execute("DELETE FROM transactions WHERE at < ?", (now - _KEPT_S,))
            self.execute("DELETE FROM launchers WHERE until < ?", (now - _KEPT_S,))
            self.execute("DELETE FROM team_secrets WHERE name LIKE 'job of %' AND at < ?", (now - _JOBS_S,))

    def _make_own_tables(self) -> None:
        with self._connection() as connection:
            known = connection.execute("SELECT to_regclass('team_secrets') AS known").fetchone()
            if known is None or known["known"] is None:
                with connection.transaction():
                    connection.execute(_LOCK, ("schema",))
                    for statement in _OWN_TABLES:
                        connection.execute(statement)

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        """The connection that this thread uses, or one that is free."""
        used = self._in_use()
        if used is not None:
            yield used
            return
        connection = None
        with suppress(queue.Empty):  # as when Ctrl-C in a notebook left one where nobody finds it
            connection = self._free.get(timeout=_CROWDED_S)
        try:
            if connection is None or connection.closed:
                connection = self._connect()
            self._used.connection = connection
            yield connection
        finally:
            self._used.connection = None
            self._free.put(connection)

    def _in_use(self) -> Connection | None:
        connection: Connection | None = getattr(self._used, "connection", None)
        return connection

    def _connected(self) -> Connection:
        connection = self._in_use()
        assert connection is not None, "outside of reading() and writing()"
        return connection

    def _connect(self) -> Connection:
        # Values are bound here (ClientCursor): what a `?` is need not be told to the server, nor is a
        # statement kept there, which poolers between us and it do not like.
        connection = psycopg.connect(
            **self._options, autocommit=True, row_factory=dict_row, cursor_factory=psycopg.ClientCursor
        )
        connection.execute(_SESSION)
        return connection

    def _storage_error(self, error: psycopg.Error) -> StorageError:
        text = " ".join(str(error).split())
        if error.sqlstate == "53100":
            return StorageError(f"no space left for {self.where}: {text}")
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and _may_pass(error):
            waited = f" for {self._retry_s:.0f} s" if self._retry_s else ""
            hint = "is it running, and does VASTRUN_LEDGER name it?"
            return StorageError(f"{self.where} cannot be reached{waited}: {text}", hint=hint)
        return StorageError(f"{self.where}: {text}")


_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED;"
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 20))"
_LOCK_ALL = "LOCK TABLE runs IN SHARE ROW EXCLUSIVE MODE"
_TOKEN = "INSERT INTO transactions (token, at) VALUES (%(token)s, EXTRACT(EPOCH FROM clock_timestamp()))"
_COMMIT = f"{_TOKEN}; COMMIT"
_IS_FREE = f"{_TOKEN} ON CONFLICT DO NOTHING RETURNING token"
"""Another transaction that has the token, and has not ended, is waited for. One that never had it, or was
rolled back, cannot take it any more."""


def _beginning(lock: str | None) -> tuple[Any, ...]:
    return (f"{_BEGIN} {_LOCK_ALL}",) if lock is None else (f"{_BEGIN} {_LOCK}", (lock,))


def _roll_back(connection: Connection) -> None:
    """What is not idle by now was not committed. A connection that cannot say so is thrown away."""
    if connection.closed or connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE:
        return
    try:
        connection.execute("ROLLBACK")
    except psycopg.Error:
        connection.close()


def _may_pass(error: psycopg.Error) -> bool:
    """Whether the same may do later: the connection was lost, or the database is not ready."""
    if isinstance(error, psycopg.InterfaceError):
        return True
    state = error.sqlstate or "08000"
    # Connections, a lost race, too many clients, shutdowns and starts, locks, a standby that is to take over.
    return state.startswith(("08", "40", "57", "55")) or state in ("53300", "25006")


def _options(url: str) -> dict[str, Any]:
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        text = " ".join(str(error).split())
        raise UsageError(
            f"VASTRUN_LEDGER: expected postgresql://user@host/database: {text}",
            hint="VASTRUN_LEDGER=postgresql://me@db.lab/vastrun vastrun status",
        ) from error
    return {**_USUAL, **{key: value for key, value in given.items() if value}}


@cache
def _translated(sql: str) -> Any:
    for ours, theirs in _WORDS:
        sql = re.sub(ours, theirs, sql)
    return sql


def _bound(values: Values) -> Any:
    """PostgreSQL keeps no NUL in a text, and a box may send one."""
    if isinstance(values, dict):
        return {name: _storable(value) for name, value in values.items()}
    return [_storable(value) for value in values]


def _memory_of(value: Any) -> int:
    """Bytes that a value of a row takes, about."""
    return _CELL_BYTES + (len(value) if isinstance(value, str | bytes) else 0)


def _storable(value: Any) -> Any:
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(value, str) else value
