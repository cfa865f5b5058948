"""Connection to a team's ledger, opened at the first use; the name of this computer in the team."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.ledger.signatures import SignedRows, signing_key, stored_text
from vastrun.launcher.package_files import install_command
from vastrun.launcher.ports import RateLimitStore, SecretStore

if TYPE_CHECKING:
    from vastrun.launcher.ledger.postgres import PostgresDatabase
    from vastrun.launcher.ledger.team import PostgresLedger

SCHEMES = ("postgresql://", "postgres://")


class TeamConnection:
    """The database that all computers of a team share; connects lazily."""

    def __init__(self, url: str, key: str = "") -> None:
        """`key`: encrypts the team's secrets. Raises UsageError when `url` is not a PostgreSQL URL."""
        if not url.startswith(SCHEMES):
            raise UsageError(
                "VASTRUN_LEDGER: expected postgresql://user@host/database",
                hint="VASTRUN_LEDGER=postgresql://me@db.lab/vastrun vastrun status",
            )
        self._url, self._key = url, key

    @cached_property
    def database(self) -> PostgresDatabase:
        """The connection. Raises UsageError without psycopg, StorageError without a response."""
        try:
            from vastrun.launcher.ledger.postgres import PostgresDatabase  # slow to import: psycopg
        except ImportError as error:
            raise UsageError(
                f"VASTRUN_LEDGER is set, but psycopg cannot be imported: {error}",
                hint=install_command("team"),
            ) from error
        return PostgresDatabase(self._url)

    def time(self) -> float:
        """Return epoch seconds by the database's clock."""
        return self.database.time()

    def open(
        self,
        *,
        now: Callable[[], float],
        alive_here: Callable[[str], bool | None],
        computer: Callable[[], str],
        state: Path,
    ) -> PostgresLedger:
        """Return the ledger to be shown.

        `now`, `alive_here`: as of `PostgresLedger`. `computer`: returns this computer's name in the team.
        `state`: the folder with its key.
        """
        database = self.database
        from vastrun.launcher.ledger.team import PostgresLedger

        rows = partial(SignedRows, computer=computer, own=partial(signing_key, state), team=self._key)
        return PostgresLedger(database, now=now, alive_here=alive_here, rows=rows)

    def rate_limits(self, key: str) -> RateLimitStore:
        """Return the store of rate limits for calls with this API key."""
        database = self.database
        from vastrun.launcher.ledger.team import PostgresRateLimitStore

        return PostgresRateLimitStore(database, key)

    def secrets(self, ledger: str) -> SecretStore | None:
        """Return the secret store of the ledger with this id; None when this computer has no key."""
        if not self._key:
            return None
        database = self.database
        from vastrun.launcher.ledger.team import PostgresSecretStore

        return PostgresSecretStore(database, self._key, ledger)


def computer_name(state: Path) -> str:
    """Return this computer's name in a team: its host name and a random word stored in `state`.

    The word is needed because two laptops may both be called `localhost`. Raises StorageError.
    """
    word = stored_text(state / "computer", lambda: secrets.token_hex(4))
    return f"{socket.gethostname()}~{word}"
