"""Whose containers they are: several people, each with a ledger, may share one daemon."""

from __future__ import annotations

import secrets
from pathlib import Path

from launcher.core.errors import StorageError

_NAME = "docker-owner"


def owner_of(state: Path) -> str:
    """A word for the ledger in this folder, the same one for every launcher. Raises StorageError."""
    path = state / _NAME
    try:
        if not path.exists():
            _create(path)
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(
            f"cannot tell whose containers are ours: {error}", hint=f"remove {path}"
        ) from error


def _create(path: Path) -> None:
    """The file, whole from the moment it has its name. Of several launchers the first one's stays."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f".{_NAME}.{secrets.token_hex(4)}")
    try:
        part.write_text(secrets.token_hex(8), encoding="ascii")
        path.hardlink_to(part)
    except FileExistsError:
        return
    finally:
        part.unlink(missing_ok=True)
