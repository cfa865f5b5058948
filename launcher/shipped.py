"""Where the files that we ship lie: in a checkout beside this package, in an installed wheel inside it."""

from __future__ import annotations

from pathlib import Path

import launcher
from launcher.errors import VastrunError

_PACKAGE = Path(launcher.__file__).resolve().parent


def onstart_dir() -> Path:
    """The scripts that run on a box."""
    return _found("onstart")


def configs_dir() -> Path:
    """The example job files."""
    return _found("configs")


def trainer_dir() -> Path:
    """The trainer package, as source."""
    return _existing(_PACKAGE.parent / "trainer")


def library_dir() -> Path:
    """The package that a program of the user's own imports, as source."""
    return _existing(_PACKAGE.parent / "vastrun")


def _found(name: str) -> Path:
    installed = _PACKAGE / "shipped" / name
    return installed if installed.is_dir() else _existing(_PACKAGE.parent / name)


def _existing(folder: Path) -> Path:
    if not folder.is_dir():
        raise VastrunError(f"vastrun is not installed completely: no {folder}", hint="install it again")
    return folder
