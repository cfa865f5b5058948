"""Ledger of a team in PostgreSQL: heartbeats of launchers, shared rate limits, and encrypted secrets."""

from __future__ import annotations

import atexit
import hashlib
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from functools import cached_property
from typing import TypeVar

from vastrun.launcher.core import Run
from vastrun.launcher.core.errors import StorageError, UnsignedError, UsageError
from vastrun.launcher.ledger.database import with_retries
from vastrun.launcher.ledger.postgres import PostgresDatabase
from vastrun.launcher.ledger.signatures import SignedRows, check_team_key
from vastrun.launcher.ledger.sql import SqlLedger

HEARTBEAT_INTERVAL_S = 15.0
HEARTBEAT_TIMEOUT_S = 60.0
"""Seconds without a heartbeat after which a launcher on another computer counts as dead."""
_END_WAIT_S = 5.0
"""Seconds that an end waits for a heartbeat on its way; without a database that would be minutes."""

_T = TypeVar("_T")

_UPSERT_LAUNCHER = (
    "INSERT INTO launchers (who, until) VALUES (:who, :until) ON CONFLICT (who) DO UPDATE SET until = :until"
)


class PostgresLedger(SqlLedger):
    """The Ledger port, for all computers of a team."""

    def __init__(
        self,
        db: PostgresDatabase,
        *,
        now: Callable[[], float],
        alive_here: Callable[[str], bool | None],
        rows: Callable[[str], SignedRows],
        heartbeat_timeout_s: float = HEARTBEAT_TIMEOUT_S,
    ) -> None:
        """`alive_here(who)`: whether that process is alive; None when it is another computer's. `rows(id)`:
        the form of rows in the ledger of that id.
        """
        self._alive_here, self._heartbeats = alive_here, Heartbeats(db, heartbeat_timeout_s)
        super().__init__(
            db,
            where=db.where,
            now=now,
            alive=self._is_alive,
            register_launcher=self._heartbeats.keep,
            rows=rows,
        )
        self._add_signatures()
        self._display = self

    def for_drivers(self) -> PostgresLedger:
        assert isinstance(self._rows, SignedRows)
        view = copy(self)
        view._rows = self._rows.for_drivers()
        view.batches = self.batches.with_rows(view._rows)
        return view

    def for_display(self) -> PostgresLedger:
        return self._display

    def save(self, run: Run, *, who: str) -> None:
        # To sign a row that was not verified would make a stranger's row this computer's own.
        if self._rows.shows_all:
            raise UnsignedError(f"{run.id} was read to be shown, and cannot be saved")
        super().save(run, who=who)

    @with_retries
    def _add_signatures(self) -> None:
        """Add the columns that a ledger of one computer does not need. Rows of before are not signed."""
        with self._db.reading():
            if self._db.row(_HAS_SIGNATURES) is not None:
                return
        with self._db.writing("schema"):
            for table in ("runs", "batches", "points"):
                self._db.execute(_ADD_SIGNATURE.format(table=table))

    def close(self) -> None:
        """End the heartbeats and close the database."""
        self._heartbeats.end()
        super().close()

    def _is_alive(self, who: str) -> bool:
        here = self._alive_here(who)
        return self._heartbeats.is_alive(who) if here is None else here


_HAS_SIGNATURES = "SELECT 1 FROM pg_attribute WHERE attrelid = 'points'::regclass AND attname = 'signature'"
_ADD_SIGNATURE = "ALTER TABLE {table} ADD COLUMN IF NOT EXISTS signature TEXT NOT NULL DEFAULT ''"


class Heartbeats:
    """Heartbeats of this process's launchers: a row for each, with the time at which it expires."""

    def __init__(
        self,
        db: PostgresDatabase,
        heartbeat_timeout_s: float = HEARTBEAT_TIMEOUT_S,
        interval_s: float = HEARTBEAT_INTERVAL_S,
    ) -> None:
        self._db, self._timeout_s, self._interval_s = db, heartbeat_timeout_s, interval_s
        self._launchers: set[str] = set()
        self._ended = threading.Event()
        self._renewing = threading.Lock()

    def keep(self, who: str) -> None:
        """Send heartbeats for `who` until this process ends."""
        if who in self._launchers:
            return
        if not self._launchers:
            threading.Thread(target=self._renew_forever, name="heartbeat", daemon=True).start()
            atexit.register(self.end)
        self._write(who)
        self._launchers.add(who)

    def is_alive(self, who: str) -> bool:
        """Return whether its heartbeat is current. Runs in the caller's reading() or writing()."""
        row = self._db.row("SELECT until FROM launchers WHERE who = ?", (who,))
        return row is not None and bool(row["until"] >= self._db.now())

    def end(self) -> None:
        """Delete the rows of these launchers; if that fails, they expire."""
        if self._ended.is_set():
            return
        self._ended.set()
        # A renewal on its way would write the row again.
        if not self._renewing.acquire(timeout=_END_WAIT_S):
            return
        with suppress(StorageError):
            for who in self._launchers:
                self._delete(who)

    def _renew_forever(self) -> None:
        while not self._ended.wait(self._interval_s):
            with suppress(StorageError):  # was retried for long enough; the next heartbeat tries again
                with self._renewing:
                    for who in () if self._ended.is_set() else list(self._launchers):
                        self._write(who)
                self._db.with_retries(self._db.delete_expired)

    @with_retries
    def _write(self, who: str) -> None:
        with self._db.reading():  # autocommit of one idempotent statement, which may be repeated
            self._db.execute(_UPSERT_LAUNCHER, {"who": who, "until": self._db.now() + self._timeout_s})

    @with_retries
    def _delete(self, who: str) -> None:
        with self._db.reading():
            self._db.execute("DELETE FROM launchers WHERE who = ?", (who,))


class PostgresRateLimitStore:
    """The RateLimitStore port for one API key on all computers: a row an endpoint, the database's clock."""

    def __init__(self, db: PostgresDatabase, key: str) -> None:
        """`key`: API key of the calls; only a hash of it is stored."""
        self._db, self._key = db, hashlib.sha256(key.encode()).hexdigest()[:16]

    @with_retries
    def change(self, endpoint: str, work: Callable[[str, float], tuple[str, _T]]) -> _T:
        values = {"key": self._key, "endpoint": endpoint}
        with self._db.writing(f"calls {self._key} {endpoint}"):
            row = self._db.row(_SELECT_QUEUE, values)
            queue, done = work("" if row is None else row["queue"], self._db.now())
            self._db.execute(_UPSERT_QUEUE, {**values, "queue": queue})
        return done


_SELECT_QUEUE = "SELECT queue FROM call_queues WHERE key = :key AND endpoint = :endpoint"
_UPSERT_QUEUE = (
    "INSERT INTO call_queues (key, endpoint, queue) VALUES (:key, :endpoint, :queue)"
    " ON CONFLICT (key, endpoint) DO UPDATE SET queue = :queue"
)


_NONCE_BYTES = 12


class PostgresSecretStore:
    """The SecretStore port in the team's database: AES-256-GCM; the name is authenticated with its secret."""

    def __init__(self, db: PostgresDatabase, key: str, ledger: str) -> None:
        """`key`: random text that the team shares; `ledger`: the ledger's id. Raises UsageError."""
        self._db, self._team_key, self._ledger = db, check_team_key(key), ledger

    @cached_property
    def _key(self) -> bytes:
        """The cipher's key, derived at the first use: its library is slow to import."""
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        derivation = HKDF(SHA256(), length=32, salt=self._ledger.encode(), info=b"vastrun team")
        return derivation.derive(self._team_key.encode())

    @with_retries
    def put(self, name: str, secret: bytes) -> bytes:
        with self._db.reading():  # autocommit of idempotent statements, which may be repeated
            values = {"name": name, "sealed": self._encrypt(name, secret)}
            self._db.execute(_INSERT_SECRET, values)
            row = self._db.row(_SELECT_SECRET, (name,))
        return secret if row is None else self._decrypt(name, bytes(row["sealed"]))

    @with_retries
    def replace(self, name: str, secret: bytes) -> None:
        with self._db.reading():
            self._db.execute(_UPSERT_SECRET, {"name": name, "sealed": self._encrypt(name, secret)})

    @with_retries
    def get(self, name: str) -> bytes | None:
        with self._db.reading():
            row = self._db.row(_SELECT_SECRET, (name,))
        return None if row is None else self._decrypt(name, bytes(row["sealed"]))

    @with_retries
    def remove(self, name: str) -> None:
        with self._db.reading():
            self._db.execute("DELETE FROM team_secrets WHERE name = ?", (name,))

    def _encrypt(self, name: str, secret: bytes) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + AESGCM(self._key).encrypt(nonce, secret, name.encode())

    def _decrypt(self, name: str, sealed: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce, rest = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            return AESGCM(self._key).decrypt(nonce, rest, name.encode())
        except InvalidTag as error:
            raise UsageError(
                f"{name} was encrypted with another key than this computer's VASTRUN_TEAM_KEY",
                hint="export VASTRUN_TEAM_KEY=…   (as on the computer that launched the run)",
            ) from error


_INSERT_SECRET = (
    "INSERT INTO team_secrets (name, sealed, at)"
    " VALUES (:name, :sealed, EXTRACT(EPOCH FROM clock_timestamp())) ON CONFLICT (name) DO NOTHING"
)
_UPSERT_SECRET = _INSERT_SECRET.replace(
    "DO NOTHING", "DO UPDATE SET sealed = excluded.sealed, at = excluded.at"
)
_SELECT_SECRET = "SELECT sealed FROM team_secrets WHERE name = ?"
