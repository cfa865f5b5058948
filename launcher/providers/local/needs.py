"""What a box on this computer needs of it."""

from __future__ import annotations

import platform
import shutil

TOOLS = ("bash", "setsid", "flock", "tar")
"""What its scripts are run with."""
_SYSTEM = "Linux"
_SPOKEN = {"Darwin": "macOS"}


def other_system() -> str:
    """Return the name of this computer's system; empty where that is Linux."""
    system = platform.system()
    return "" if system == _SYSTEM else _SPOKEN.get(system, system)


def lack() -> tuple[str, str]:
    """Return what is needed and not here, and what to do about it; both empty where nothing is missing."""
    if system := other_system():
        wants = f"needs Linux with {', '.join(TOOLS)}; this computer runs {system}"
        return wants, "--provider docker, or --provider vast"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)}", "install bash, tar and util-linux with your package manager"
    return "", ""
