"""Requirements of boxes on this computer: Linux and a few programs."""

from __future__ import annotations

import platform
import shutil

TOOLS = ("bash", "setsid", "flock", "tar")
"""Programs that the scripts of a box use."""
_SYSTEM = "Linux"
_DISPLAY_NAMES = {"Darwin": "macOS"}


def other_system() -> str:
    """Return the name of this computer's system; empty for Linux."""
    system = platform.system()
    return "" if system == _SYSTEM else _DISPLAY_NAMES.get(system, system)


def missing_requirement() -> tuple[str, str]:
    """Return the missing requirement and its fix; both empty when all are met."""
    if system := other_system():
        wants = f"needs Linux with {', '.join(TOOLS)}; this computer runs {system}"
        return wants, "--provider docker, or --provider vast"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)}", "install bash, tar and util-linux with your package manager"
    return "", ""
