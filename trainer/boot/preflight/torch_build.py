"""Torch build: read the version of the installed torch without importing it. Standard library only."""

from __future__ import annotations

import re
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Version = tuple[int, int]

ONBOARD_TORCH: tuple[Version, Version] = ((2, 11), (2, 16))
"""Versions that the onboard trainer supports: from the first, below the second."""
ONBOARD_PYTHON: Version = (3, 11)
"""Oldest Python that the onboard trainer supports."""
OLDEST_TORCH: Version = (2, 1)
"""Oldest torch with which the preflight tests communication."""


def torch_fault(*, gpus: int) -> str:
    """Return why the installed torch cannot train on this number of GPUs; empty if it can."""
    if find_spec("torch") is None:
        return "torch is not installed: take an image that has it"
    if gpus and torch_cuda() is None:
        return "torch is built for the CPU only: take an image with CUDA"
    return ""


def onboard_fault(torch: Version | None, python: Version) -> str:
    """Return why the onboard trainer does not support these versions; empty if it does. None: unknown."""
    if python < ONBOARD_PYTHON:
        needed = f"Python {dotted(ONBOARD_PYTHON)} or newer"
        return f"the onboard trainer needs {needed}, and this is Python {dotted(python)}"
    oldest, above = ONBOARD_TORCH
    if torch is not None and not oldest <= torch < above:
        needed = f"torch {dotted(oldest)} or newer, below {dotted(above)}"
        return f"the onboard trainer needs {needed}, and this is torch {dotted(torch)}"
    return ""


def onboard_fault_here() -> str:
    """Return why the onboard trainer does not support the installed versions; empty if it does."""
    return onboard_fault(torch_version(), (sys.version_info.major, sys.version_info.minor))


def skip_reason() -> str:
    """Return why communication cannot be tested before a user's program; empty if it can."""
    if find_spec("torch") is None:
        return "torch is not installed"
    version = torch_version()
    if version is not None and version < OLDEST_TORCH:
        return f"torch {dotted(version)} is older than {dotted(OLDEST_TORCH)}"
    return ""


def torch_cuda() -> Version | None:
    """Return the CUDA version of torch's build."""
    return _version(_of_build().get("cuda"))


def torch_version() -> Version | None:
    """Return the version of torch; None: not installed, or unknown."""
    return _version(_of_build().get("__version__"))


def dotted(version: Version) -> str:
    """Format a version: 2.13."""
    return f"{version[0]}.{version[1]}"


def _of_build() -> dict[str, Any]:
    found = find_spec("torch")
    path = Path(found.origin).with_name("version.py") if found and found.origin else None
    return runpy.run_path(str(path)) if path and path.exists() else {}


def _version(text: str | None) -> Version | None:
    found = re.match(r"(\d+)(?:\.(\d+))?", text or "")
    return (int(found[1]), int(found[2] or 0)) if found else None
