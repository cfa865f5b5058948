"""What came with this vastrun, in a checkout or a wheel: files for boxes, packages that are optional."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from vastrun.launcher.core.errors import VastrunError

_LIBRARY = Path(__file__).absolute().parents[1]
"""Not resolved: in a checkout, `vastrun/launcher` is a link to a folder beside it."""
_CHECKOUT = _LIBRARY.parent


def onstart_dir() -> Path:
    """Find the scripts that run on a box. Raises VastrunError."""
    return _found("onstart")


def configs_dir() -> Path:
    """Find the example job files. Raises VastrunError."""
    return _found("configs")


def schemas() -> dict[str, Path]:
    """Find the JSON Schemas by name: of "job" and "batch" files, then of what commands print with --json."""
    folder = configs_dir() / "schemas"
    files = [folder / "job.json", folder / "batch.json", *sorted((folder / "output").glob("*.json"))]
    return {file.stem: file for file in files}


def trainer_dir() -> Path:
    """Find the trainer package, as source. Raises VastrunError."""
    return _existing(_LIBRARY / "trainer")


def library_dir() -> Path:
    """Find the whole package `vastrun`, as source. Raises VastrunError."""
    return _existing(_LIBRARY)


def install_command(*extras: str, python: str = sys.executable) -> str:
    """Return the command that adds the packages of these extras of vastrun to the environment of a Python.

    It names the packages, since vastrun is on no index, and the tool that made the environment: one of pipx,
    `uv tool` or `uv venv` has no pip.
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


def _found(name: str) -> Path:
    installed = _LIBRARY / "launcher" / "shipped" / name
    return installed if installed.is_dir() else _existing(_CHECKOUT / name)


def _existing(folder: Path) -> Path:
    if not folder.is_dir():
        raise VastrunError(f"vastrun is not installed completely: no {folder}", hint="install it again")
    return folder
