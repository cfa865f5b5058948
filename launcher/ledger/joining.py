"""Joins the ledger of a team: connects when it is first asked for something, and has its time."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from vastrun.launcher.core.errors import StorageError, UsageError
from vastrun.launcher.ports import RateLimitStore, SecretStore
from vastrun.launcher.shipped import install_command

if TYPE_CHECKING:
    from vastrun.launcher.ledger.postgres import PostgresDatabase
    from vastrun.launcher.ledger.team import PostgresLedger

SCHEMES = ("postgresql://", "postgres://")


class TeamLedger:
    """The database that all computers of a team share."""

    def __init__(self, url: str, key: str = "") -> None:
        """`key`: what the team's secrets are sealed with. Raises UsageError when `url` is no database's."""
        if not url.startswith(SCHEMES):
            raise UsageError(
                "VASTRUN_LEDGER: expected postgresql://user@host/database",
                hint="VASTRUN_LEDGER=postgresql://me@db.lab/vastrun vastrun status",
            )
        self._url, self._key = url, key

    @cached_property
    def database(self) -> PostgresDatabase:
        """The connection. Raises UsageError where psycopg is missing, StorageError where nobody answers."""
        try:
            from vastrun.launcher.ledger.postgres import PostgresDatabase  # slow to import: psycopg
        except ImportError as error:
            raise UsageError(
                f"VASTRUN_LEDGER names a database, and psycopg cannot be imported: {error}",
                hint=install_command("team"),
            ) from error
        return PostgresDatabase(self._url)

    def time(self) -> float:
        """Return epoch seconds by the database's clock."""
        return self.database.time()

    def open(self, *, now: Callable[[], float], alive_here: Callable[[str], bool | None]) -> PostgresLedger:
        """Return the ledger; what is given is as `PostgresLedger` says."""
        database = self.database
        from vastrun.launcher.ledger.team import PostgresLedger

        return PostgresLedger(database, now=now, alive_here=alive_here)

    def book(self, key: str) -> RateLimitStore:
        """Return who calls when with that key."""
        database = self.database
        from vastrun.launcher.ledger.team import TeamBook

        return TeamBook(database, key)

    def secrets(self, ledger: str) -> SecretStore | None:
        """Return the secrets of the ledger with that id; None: this computer has no key to them."""
        if not self._key:
            return None
        database = self.database
        from vastrun.launcher.ledger.team import Vault

        return Vault(database, self._key, ledger)


def name_of_computer(state: Path) -> str:
    """Return this computer's name for a team: that of its network, and a word that is kept in `state`.

    Two laptops may both be called `localhost`. Raises StorageError.
    """
    file = state / "computer"
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not file.exists():
            part = file.with_name(f".computer.{secrets.token_hex(4)}")
            part.write_text(secrets.token_hex(4))
            try:
                file.hardlink_to(part)  # of several launchers the first one's stays
            except FileExistsError:
                pass
            finally:
                part.unlink()
        return f"{socket.gethostname()}~{file.read_text()}"
    except OSError as error:
        hint = "XDG_STATE_HOME=/somewhere/writable vastrun ..."
        raise StorageError(f"cannot write {file}: {error.strerror or error}", hint=hint) from error
