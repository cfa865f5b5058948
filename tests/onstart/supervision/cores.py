"""Core files of programs that crash here."""

import resource
from pathlib import Path

from vastrun.onstart.supervision.core_file import core_location


def cores_are_files() -> bool:
    """Whether a program that crashes here leaves a core file in its folder."""
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    return hard != 0 and core_location(Path.cwd()) is not None
