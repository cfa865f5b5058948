"""Secrets of a team, sealed with its key: whoever has the database without the key reads none of them."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import cache

from launcher.core.errors import UsageError
from launcher.ledger.postgres import PostgresDatabase

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
