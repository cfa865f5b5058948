"""What a team's ledger has besides runs: who is alive, who calls a provider when, and the sealed secrets."""

from __future__ import annotations

import atexit
import hashlib
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import TypeVar

from vastrun.launcher.core.errors import StorageError, UsageError
from vastrun.launcher.ledger.postgres import PostgresDatabase
from vastrun.launcher.ledger.sql import SqlLedger

BEAT_S = 15.0
LEASE_S = 60.0
"""A launcher of another computer that was not heard of for so long is dead, or as good as that."""

_T = TypeVar("_T")

_BEAT = (
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
        lease_s: float = LEASE_S,
    ) -> None:
        """`alive_here(who)`: whether that process lives; None: it is another computer's."""
        self._alive_here, self._leases = alive_here, Leases(db, lease_s)
        super().__init__(db, where=db.where, now=now, alive=self._lives, arrive=self._leases.keep)

    def close(self) -> None:
        """Close the database. The launchers that drove by this ledger have ended."""
        self._leases.end()
        super().close()

    def _lives(self, who: str) -> bool:
        here = self._alive_here(who)
        return self._leases.is_alive(who) if here is None else here


class Leases:
    """The launchers of this process, each in a row that says until when it is alive."""

    def __init__(self, db: PostgresDatabase, lease_s: float = LEASE_S) -> None:
        self._db, self._lease_s = db, lease_s
        self._kept: set[str] = set()
        self._over = threading.Event()

    def keep(self, who: str) -> None:
        """Let all computers see that `who` is alive, from now on and until this process ends."""
        if who in self._kept:
            return
        if not self._kept:
            threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()
            atexit.register(self.end)
        self._write(who)
        self._kept.add(who)

    def is_alive(self, who: str) -> bool:
        """Return whether it was heard of lately. Within the caller's reading or writing."""
        row = self._db.row("SELECT until FROM launchers WHERE who = ?", (who,))
        return row is not None and bool(row["until"] >= self._db.now())

    def end(self) -> None:
        """Say that they have ended. Nobody has to hear it: their leases run out by themselves."""
        if self._over.is_set():
            return
        self._over.set()
        with suppress(StorageError):
            for who in self._kept:
                self._db.retried(lambda who=who: self._delete(who))  # type: ignore[misc]

    def _beat(self) -> None:
        while not self._over.wait(BEAT_S):
            with suppress(StorageError):  # it was asked for long enough; the next beat asks again
                for who in list(self._kept):
                    self._write(who)
                self._db.retried(self._db.tidy)

    def _write(self, who: str) -> None:
        def write() -> None:
            with self._db.reading():  # one statement: a transaction of its own, and it may be done twice
                self._db.execute(_BEAT, {"who": who, "until": self._db.now() + self._lease_s})

        self._db.retried(write)

    def _delete(self, who: str) -> None:
        with self._db.reading():
            self._db.execute("DELETE FROM launchers WHERE who = ?", (who,))


class TeamBook:
    """The CallBook port of one key, wherever it is used: a row an endpoint, the time the database's."""

    def __init__(self, db: PostgresDatabase, key: str) -> None:
        """`key`: what the calls are made with. No more than a hash of it is kept."""
        self._db, self._key = db, hashlib.sha256(key.encode()).hexdigest()[:16]

    def change(self, endpoint: str, work: Callable[[str, float], tuple[str, _T]]) -> _T:
        return self._db.retried(lambda: self._changed(endpoint, work))

    def _changed(self, endpoint: str, work: Callable[[str, float], tuple[str, _T]]) -> _T:
        values = {"key": self._key, "endpoint": endpoint}
        with self._db.writing(f"calls {self._key} {endpoint}"):
            row = self._db.row(_QUEUED, values)
            queue, done = work("" if row is None else row["queue"], self._db.now())
            self._db.execute(_QUEUE, {**values, "queue": queue})
        return done


_QUEUED = "SELECT queue FROM call_queues WHERE key = :key AND endpoint = :endpoint"
_QUEUE = (
    "INSERT INTO call_queues (key, endpoint, queue) VALUES (:key, :endpoint, :queue)"
    " ON CONFLICT (key, endpoint) DO UPDATE SET queue = :queue"
)


LEAST_CHARACTERS = 32
MAKES_KEY = "openssl rand -base64 32"
_NONCE_BYTES = 12


class Vault:
    """The SecretStore port: AES-256-GCM, the name sealed with its secret."""

    def __init__(self, db: PostgresDatabase, key: str, ledger: str) -> None:
        """`key`: random text that the team keeps; `ledger`: the id of theirs. Raises UsageError."""
        if len(key) < LEAST_CHARACTERS:
            raise UsageError(
                f"VASTRUN_TEAM_KEY: expected {LEAST_CHARACTERS} characters or more, got {len(key)}",
                hint=f"export VASTRUN_TEAM_KEY=$({MAKES_KEY})   (once; the same on all computers)",
            )
        self._db, self._key = db, _derived(key, ledger)

    def put(self, name: str, secret: bytes) -> bytes:
        def write() -> bytes:
            with self._db.reading():  # each statement is a transaction of its own, and may be done twice
                values = {"name": name, "sealed": self._seal(name, secret)}
                self._db.execute(_PUT, values)
                row = self._db.row(_GET, (name,))
            return secret if row is None else self._opened(name, bytes(row["sealed"]))

        return self._db.retried(write)

    def replace(self, name: str, secret: bytes) -> None:
        def write() -> None:
            with self._db.reading():
                self._db.execute(_REPLACE, {"name": name, "sealed": self._seal(name, secret)})

        self._db.retried(write)

    def get(self, name: str) -> bytes | None:
        def read() -> bytes | None:
            with self._db.reading():
                row = self._db.row(_GET, (name,))
            return None if row is None else self._opened(name, bytes(row["sealed"]))

        return self._db.retried(read)

    def remove(self, name: str) -> None:
        def delete() -> None:
            with self._db.reading():
                self._db.execute("DELETE FROM team_secrets WHERE name = ?", (name,))

        self._db.retried(delete)

    def _seal(self, name: str, secret: bytes) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + AESGCM(self._key()).encrypt(nonce, secret, name.encode())

    def _opened(self, name: str, sealed: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce, rest = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            return AESGCM(self._key()).decrypt(nonce, rest, name.encode())
        except InvalidTag as error:
            raise UsageError(
                f"{name}: it was sealed with another key than this computer's VASTRUN_TEAM_KEY",
                hint="export VASTRUN_TEAM_KEY=…   (as on the computer that launched the run)",
            ) from error


_PUT = (
    "INSERT INTO team_secrets (name, sealed, at)"
    " VALUES (:name, :sealed, EXTRACT(EPOCH FROM clock_timestamp())) ON CONFLICT (name) DO NOTHING"
)
_REPLACE = _PUT.replace("DO NOTHING", "DO UPDATE SET sealed = excluded.sealed, at = excluded.at")
_GET = "SELECT sealed FROM team_secrets WHERE name = ?"


def _derived(key: str, ledger: str) -> Callable[[], bytes]:
    """The cipher's key, made when it is first needed: its library is slow to import."""

    @cache
    def derive() -> bytes:
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        return HKDF(SHA256(), length=32, salt=ledger.encode(), info=b"vastrun team").derive(key.encode())

    return derive
