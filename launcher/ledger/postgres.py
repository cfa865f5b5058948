"""PostgreSQL database of a team's ledger."""

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
from vastrun.launcher.gate.caps import Allowance, ExchangeBudget
from vastrun.launcher.ledger.database import Row, Values

RETRY_TIMEOUT_S = 60.0
"""Seconds for which work is retried while the database is away, such as during its restart."""
_CELL_BYTES = 64
_MAX_CONNECTIONS = 4
"""Connections of one process; further threads wait."""
_SECRET_RETENTION_S = 30 * 86_400.0
"""Seconds for which code and secrets are kept for the retries of a run."""
_RETENTION_S = 3600.0
"""Seconds for which a finished transaction is remembered: its launcher asks for it at once or never."""

_DEFAULT_OPTIONS = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "tcp_user_timeout": 30_000,
    "fallback_application_name": "vastrun",
}
"""Defaults for options that the URL does not set; in seconds, `tcp_user_timeout` in milliseconds."""
_SESSION = (
    "SET statement_timeout = '30s'; SET lock_timeout = '30s';"
    # A launcher that is suspended within a transaction must not keep the others from writing.
    " SET idle_in_transaction_session_timeout = '10s'"
)

_TRANSLATIONS: Sequence[tuple[str, str]] = (
    (r"\bREAL\b", "DOUBLE PRECISION"),  # PostgreSQL's REAL has six digits, too few for epoch seconds
    (r"\bnumber INTEGER PRIMARY KEY\b", "number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),
    (r"\bINTEGER\b", "BIGINT"),
    # SQLite adds rowid to each table: the order in which rows were written.
    (r"\bCREATE TABLE runs \(", "CREATE TABLE runs (rowid BIGINT GENERATED ALWAYS AS IDENTITY,"),
    (r"%", "%%"),
    (r"(?<![:\w]):([a-z_]+)", r"%(\1)s"),
    (r"\?", "%s"),
)
"""Patterns of SQLite's dialect and their PostgreSQL replacements, applied in this order."""

_EXTRA_TABLES = (
    "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS transactions (token TEXT PRIMARY KEY, at DOUBLE PRECISION NOT NULL)",
    "CREATE TABLE IF NOT EXISTS launchers (who TEXT PRIMARY KEY, until DOUBLE PRECISION NOT NULL)",
    "CREATE TABLE IF NOT EXISTS call_queues (key TEXT NOT NULL, endpoint TEXT NOT NULL, queue TEXT NOT NULL,"
    " PRIMARY KEY (key, endpoint))",
    "CREATE TABLE IF NOT EXISTS team_secrets (name TEXT PRIMARY KEY, sealed BYTEA NOT NULL,"
    " at DOUBLE PRECISION NOT NULL)",
)
"""Tables for data that a ledger of one computer stores in files or does not need."""

_T = TypeVar("_T")
Connection = psycopg.Connection[DictRow]


class PostgresDatabase:
    """The Database interface for PostgreSQL.

    Transactions are READ COMMITTED and begin with their lock: each later statement sees everything that was
    committed before. A lock of None locks the table `runs` against writers, not readers.
    """

    new_ledger_hint = "VASTRUN_LEDGER=postgresql://me@db.lab/another_database vastrun …"

    def __init__(
        self,
        url: str,
        *,
        sleep: Callable[[float], None] = time.sleep,
        elapsed: Callable[[], float] = time.monotonic,
        retry_timeout_s: float = RETRY_TIMEOUT_S,
        allowance: Allowance = caps.EXCHANGES["ledger"],
    ) -> None:
        """`allowance`: limits of each response. Raises UsageError for an invalid `url`, StorageError when the
        database cannot be reached.
        """
        self._url, self._sleep, self._elapsed = url, sleep, elapsed
        self._allowance = allowance
        self._options = _options(url)
        self.where = (
            f"the database {self._options.get('dbname', '')} on {self._options.get('host', 'this computer')}"
        )
        """Name of the database for messages, without user and password."""
        self._pool: queue.LifoQueue[Connection | None] = queue.LifoQueue()
        for _ in range(_MAX_CONNECTIONS):
            self._pool.put(None)
        self._local = threading.local()
        self._retry_timeout_s = 0.0
        self.with_retries(self._create_extra_tables)  # no retries here: report a wrong URL at once
        self._retry_timeout_s = retry_timeout_s

    def now(self) -> float:
        row = self.row("SELECT EXTRACT(EPOCH FROM clock_timestamp())::DOUBLE PRECISION AS now")
        assert row is not None
        return float(row["now"])

    def time(self) -> float:
        """Return the database's clock in epoch seconds, also outside of reading() and writing().

        Raises StorageError.
        """

        def read_clock() -> float:
            with self.reading():
                return self.now()

        return self.with_retries(read_clock)

    @contextmanager
    def reading(self) -> Iterator[None]:
        with self._connection():
            yield

    @contextmanager
    def writing(self, lock: str | None) -> Iterator[None]:
        token = secrets.token_hex(16)
        with self._connection() as connection:
            try:
                if lock is None:
                    connection.execute(f"{_BEGIN} {_LOCK_ALL}")
                else:
                    connection.execute(f"{_BEGIN} {_LOCK}", (lock,))
                yield
                self._commit(connection, token)
            finally:
                _roll_back(connection)

    def _commit(self, connection: Connection, token: str) -> None:
        """Commit. If the connection breaks before the response, the stored token shows the outcome."""
        try:
            connection.execute(_COMMIT, {"token": token})
        except psycopg.OperationalError as error:
            connection.close()
            is_rejected = error.sqlstate is not None and not error.sqlstate.startswith(("08", "57P"))
            if is_rejected or not self._retry(lambda: self._is_committed(token)):
                raise

    def _is_committed(self, token: str) -> bool:
        """Return whether the transaction with that token was committed; waits until that is decided."""
        with self._connect() as fresh:
            return fresh.execute(_CLAIM_TOKEN, {"token": token}).fetchone() is None

    def execute(self, sql: str, values: Values = ()) -> object:
        return self._current().execute(_translate(sql), _bind(values))

    def execute_many(self, sql: str, values: Sequence[Values]) -> None:
        with self._current().cursor() as cursor:
            cursor.executemany(_translate(sql), [_bind(one) for one in values])

    def rows(self, sql: str, values: Values = ()) -> Sequence[Row]:
        budget = ExchangeBudget(self._allowance, now=self._elapsed, sender=self.where, error=StorageError)
        rows: list[Row] = []
        with self._current().cursor() as cursor:
            for row in cursor.stream(_translate(sql), _bind(values)):
                texts = sum(len(value) for value in row.values() if isinstance(value, str | bytes))
                budget.spend(items=1, memory=texts + _CELL_BYTES * len(row))
                rows.append(row)
        return rows

    def row(self, sql: str, values: Values = ()) -> Row | None:
        return next(iter(self.rows(sql, values)), None)

    def with_retries(self, work: Callable[[], _T]) -> _T:
        if self._current_or_none() is not None:
            return work()  # within another method, which is done again as a whole
        try:
            return self._retry(work)
        except psycopg.Error as error:
            raise self._storage_error(error) from error

    def _retry(self, work: Callable[[], _T]) -> _T:
        until = self._elapsed() + self._retry_timeout_s
        while True:
            try:
                return work()
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                if not _is_transient(error) or self._elapsed() >= until:
                    raise
            self._sleep(0.5)

    def schema_version(self) -> int:
        row = self.row("SELECT version FROM schema_version")
        return 0 if row is None else int(row["version"])

    def set_schema_version(self, number: int) -> None:
        self.execute("DELETE FROM schema_version")
        self.execute("INSERT INTO schema_version (version) VALUES (?)", (number,))

    def close(self) -> None:
        with suppress(queue.Empty):
            while True:
                connection = self._pool.get_nowait()
                if connection is not None:
                    connection.close()

    def delete_expired(self) -> None:
        """Delete expired transactions, launchers and secrets."""
        with self.reading():
            now = self.now()
            self.execute("DELETE FROM transactions WHERE at < ?", (now - _RETENTION_S,))
            self.execute("DELETE FROM launchers WHERE until < ?", (now - _RETENTION_S,))
            self.execute(
                "DELETE FROM team_secrets WHERE name LIKE 'job of %' AND at < ?", (now - _SECRET_RETENTION_S,)
            )

    def _create_extra_tables(self) -> None:
        with self._connection() as connection:
            known = connection.execute("SELECT to_regclass('team_secrets') AS known").fetchone()
            if known is None or known["known"] is None:
                with connection.transaction():
                    connection.execute(_LOCK, ("schema",))
                    for statement in _EXTRA_TABLES:
                        connection.execute(statement)

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        """Yield the connection of this thread, or a free one of the pool."""
        used = self._current_or_none()
        if used is not None:
            yield used
            return
        connection = None
        with suppress(queue.Empty):  # Ctrl-C in a notebook can leak a connection: open a new one then
            connection = self._pool.get(timeout=30.0)
        try:
            if connection is None or connection.closed:
                connection = self._connect()
            self._local.connection = connection
            yield connection
        finally:
            self._local.connection = None
            self._pool.put(connection)

    def _current_or_none(self) -> Connection | None:
        connection: Connection | None = getattr(self._local, "connection", None)
        return connection

    def _current(self) -> Connection:
        connection = self._current_or_none()
        assert connection is not None, "outside of reading() and writing()"
        return connection

    def _connect(self) -> Connection:
        # ClientCursor binds values on the client: the server then needs no types of parameters, and holds no
        # prepared statements, which break behind connection poolers such as PgBouncer.
        connection = psycopg.connect(
            **self._options, autocommit=True, row_factory=dict_row, cursor_factory=psycopg.ClientCursor
        )
        connection.execute(_SESSION)
        return connection

    def _storage_error(self, error: psycopg.Error) -> StorageError:
        text = " ".join(str(error).split())
        if error.sqlstate == "53100":
            return StorageError(f"no space left for {self.where}: {text}")
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and _is_transient(error):
            waited = f" for {self._retry_timeout_s:.0f} s" if self._retry_timeout_s else ""
            hint = "is it running, and does VASTRUN_LEDGER name it?"
            return StorageError(f"{self.where} cannot be reached{waited}: {text}", hint=hint)
        return StorageError(f"{self.where}: {text}")


_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED;"
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 20))"
_LOCK_ALL = "LOCK TABLE runs IN SHARE ROW EXCLUSIVE MODE"
_INSERT_TOKEN = (
    "INSERT INTO transactions (token, at) VALUES (%(token)s, EXTRACT(EPOCH FROM clock_timestamp()))"
)
_COMMIT = f"{_INSERT_TOKEN}; COMMIT"
_CLAIM_TOKEN = f"{_INSERT_TOKEN} ON CONFLICT DO NOTHING RETURNING token"
"""Waits for an unfinished transaction with the token. One that never stored it, or was rolled back, can no
longer store it afterwards."""


def _roll_back(connection: Connection) -> None:
    """Roll back a transaction that was not committed; close the connection if that fails."""
    if connection.closed or connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE:
        return
    try:
        connection.execute("ROLLBACK")
    except psycopg.Error:
        connection.close()


def _is_transient(error: psycopg.Error) -> bool:
    """Return whether a retry may succeed: the connection was lost, or the database is not ready."""
    if isinstance(error, psycopg.InterfaceError):
        return True
    state = error.sqlstate or "08000"
    # SQLSTATE classes: 08 connection, 40 serialization, 57 shutdown or start, 55 locks; 53300 too many
    # connections, 25006 a standby before its failover.
    return state.startswith(("08", "40", "57", "55")) or state in ("53300", "25006")


def _options(url: str) -> dict[str, Any]:
    try:
        options = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        text = " ".join(str(error).split())
        raise UsageError(
            f"VASTRUN_LEDGER: expected postgresql://user@host/database: {text}",
            hint="VASTRUN_LEDGER=postgresql://me@db.lab/vastrun vastrun status",
        ) from error
    return {**_DEFAULT_OPTIONS, **{key: value for key, value in options.items() if value}}


@cache
def _translate(sql: str) -> Any:
    for sqlite_pattern, postgres_text in _TRANSLATIONS:
        sql = re.sub(sqlite_pattern, postgres_text, sql)
    return sql


def _bind(values: Values) -> Any:
    """Replace NULs in values: PostgreSQL cannot store them in text, and a box may send them."""
    if isinstance(values, dict):
        return {name: _replace_nul(value) for name, value in values.items()}
    return [_replace_nul(value) for value in values]


def _replace_nul(value: Any) -> Any:
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(value, str) else value
