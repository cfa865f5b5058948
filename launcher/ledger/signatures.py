"""Signatures of the rows of a team's ledger: a driver takes no row that a stranger wrote or changed.

A signature covers all that a driver reads, so a writer of the database without a key may delete rows or put
older ones back, and cannot change one. There are two for each row: by the key of the computer that wrote it,
and by the key that the team shares.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Mapping
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any

from vastrun.launcher.core.errors import StorageError, UnsignedError, UsageError
from vastrun.launcher.ledger.database import Row, RowForm, state_folder_hint
from vastrun.launcher.ledger.schema import RUN_FIELDS

MIN_KEY_CHARACTERS = 32
KEY_COMMAND = "openssl rand -base64 32"
KEY_FILE = "signing.key"
"""Name of the file in the state folder with this computer's key."""
_SIGNED: Mapping[str, tuple[str, ...]] = {
    "runs": RUN_FIELDS,
    "batches": ("name", "spec", "search", "provider", "folder", "computer", "home", "created_at"),
    "points": ("batch", "id", "number", "point_values", "spec_json"),
}
"""Signed columns. The others are what users of a ledger may ask of each other: to stop, to start again."""
_NAME = re.compile(r"\w[\w.~-]*", re.ASCII)
"""Ids of runs and names of batches, which become names of folders."""


class SignedRows(RowForm):
    """Rows of a team's ledger."""

    def __init__(
        self, ledger: str, *, computer: Callable[[], str], own: Callable[[], bytes], team: str = ""
    ) -> None:
        """`ledger`: the ledger's id. `computer`: returns this computer's name in the team. `own`: returns the
        key that only this computer has. `team`: VASTRUN_TEAM_KEY, which the computers share that drive each
        other's runs; empty: only own runs.
        """
        self._ledger, self._computer, self._own, self._team = ledger, computer, own, team
        self.shows_all = True

    def for_drivers(self) -> SignedRows:
        """Return the same, which takes only signed rows."""
        rows = copy(self)
        rows.shows_all = False
        return rows

    def columns(self, needed: str) -> str:  # noqa: ARG002
        return "*"

    def sign(self, table: str, row: Row, /) -> dict[str, Any]:
        text = self._text(table, row)
        team = _code(self._team_key, text).decode() if self._team_key else ""
        return {**row, "signature": f"{_code(self._own_key, text).decode()} {team}"}

    def verify(self, table: str, row: Row, own: bool = False, /) -> Row | None:
        by_own, _, by_team = str(row["signature"]).encode().partition(b" ")
        text = self._text(table, row)
        if hmac.compare_digest(by_own, _code(self._own_key, text)):
            return row
        if own or not self._team_key or not hmac.compare_digest(by_team, _code(self._team_key, text)):
            return None
        # Of a row of another computer nothing counts as being on this one.
        if not all(_NAME.fullmatch(row[key]) for key in ("id", "name") if key in row):
            return None
        if Path(row.get("out_dir", "out")).name == "..":
            return None
        where = {key: "" for key in ("computer", "home") if key in row and self.is_here(row[key])}
        return {**row, **where}

    def is_here(self, computer: str, /) -> bool:
        return computer == self._computer()

    def error(self, name: str, computer: str, command: str, /) -> UnsignedError:
        there = computer.partition("~")[0] or "another computer"
        return UnsignedError(
            f"{name} is only shown here: neither this computer nor one with its VASTRUN_TEAM_KEY signed it",
            hint="launch it again; the lease ends its machine"
            if self.is_here(computer)
            else f"on {there}: {command}",
        )

    def _text(self, table: str, row: Row) -> bytes:
        """Return what is signed of the row: the same before it is written and after it was read."""
        values = {name: _stored(row[name]) for name in _SIGNED[table]}
        return json.dumps([self._ledger, table, values], sort_keys=True).encode()

    @cached_property
    def _own_key(self) -> bytes:
        return self._own()

    @cached_property
    def _team_key(self) -> bytes:
        """The key derived from the team's; empty without one. Raises UsageError for a short one."""
        if not self._team:
            return b""
        return hmac.digest(check_team_key(self._team).encode(), b"vastrun rows", hashlib.sha256)


def _code(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, hashlib.sha256).hex().encode()


def _stored(value: Any) -> Any:
    """Return the value as PostgreSQL returns it: numbers of a column are all floats, text is without NULs."""
    if isinstance(value, str):
        return value.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return float(value) if isinstance(value, int) else value


def check_team_key(key: str) -> str:
    """Return the key. Raises UsageError when it is too short."""
    if len(key) < MIN_KEY_CHARACTERS:
        raise UsageError(
            f"VASTRUN_TEAM_KEY: expected {MIN_KEY_CHARACTERS} characters or more, got {len(key)}",
            hint=f"export VASTRUN_TEAM_KEY=$({KEY_COMMAND})   (once; the same on all computers)",
        )
    return key


def signing_key(state: Path) -> bytes:
    """Return this computer's key, in a file that only its user can read. Raises StorageError."""
    return stored_text(state / KEY_FILE, lambda: secrets.token_hex(32)).encode()


def stored_text(file: Path, make: Callable[[], str]) -> str:
    """Return the text of a file of the state folder, made at the first use. Raises StorageError."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not file.exists():
            part = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
            part.touch(mode=0o600)
            part.write_text(make())
            try:
                file.hardlink_to(part)  # the file of the first of several launchers stays
            except FileExistsError:
                pass
            finally:
                part.unlink()
        return file.read_text()
    except OSError as error:
        hint = state_folder_hint(file.parent)
        raise StorageError(f"cannot write {file}: {error.strerror or error}", hint=hint) from error
