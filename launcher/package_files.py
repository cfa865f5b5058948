"""Files of this vastrun, in a checkout or a wheel; and the command that installs optional packages."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from vastrun.launcher.core.errors import VastrunError

_LIBRARY = Path(__file__).absolute().parents[1]
"""Folder of the package `vastrun`; not resolved, as `vastrun/launcher` is a symbolic link in a checkout."""


def onstart_dir() -> Path:
    """Return the folder of scripts and modules that run on a machine. Raises VastrunError."""
    return _require_folder(_LIBRARY / "onstart")


def configs_dir() -> Path:
    """Return the folder of example job files. Raises VastrunError."""
    return _shipped_folder("configs")


def page(name: str) -> str:
    """Return the text of a page that comes with the package: those that say what keys of files mean."""
    return (_shipped_folder("docs") / name).read_text(encoding="utf-8")


def _shipped_folder(name: str) -> Path:
    installed = _LIBRARY / "launcher" / "shipped" / name
    return installed if installed.is_dir() else _require_folder(_LIBRARY.parent / name)


def library_dir() -> Path:
    """Return the folder of the package `vastrun`. Raises VastrunError."""
    return _require_folder(_LIBRARY)


def install_command(*extras: str, python: str = sys.executable) -> str:
    """Return the command that installs the packages of these extras into the environment of a Python.

    It names the packages, because vastrun is on no index, and uses the tool of the environment: those of
    pipx, `uv tool` and `uv venv` have no pip.
    """
    from importlib.metadata import requires  # slow to import

    packages = [
        requirement.partition(";")[0].strip()
        for requirement in requires("vastrun") or ()
        if any(re.search(rf"extra == ['\"]{extra}['\"]", requirement) for extra in extras)
    ]
    environment = Path(shutil.which(python) or python).parent.parent
    if (environment / "pipx_metadata.json").exists():
        return shlex.join(["pipx", "inject", environment.name, *packages])
    is_own = python == sys.executable
    has_pip = find_spec("pip") if is_own else any(environment.glob("lib/*/site-packages/pip"))
    if has_pip or not (environment / "pyvenv.cfg").exists():
        return shlex.join([python, "-m", "pip", "install", *packages])
    return shlex.join(["uv", "pip", "install", "--python", python, *packages])


def _require_folder(folder: Path) -> Path:
    if not folder.is_dir():
        raise VastrunError(f"vastrun is incomplete: {folder} is missing", hint="reinstall vastrun")
    return folder
