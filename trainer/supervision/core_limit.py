"""Core limit: lets a user's own program leave a core file that is bounded, where somebody can read it.

Standard library only.
"""

from __future__ import annotations

import resource
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainer.contract.job import working_folder
from trainer.supervision.core_file import CorePlace, core_place

MAX_CORE = 2 << 30
"""Bytes of one core file that gdb can use."""
NOTES_CORE = 16 << 20
"""Bytes that hold the notes: without gdb nothing else of a core is of use."""
_SHARE = 32
"""One core takes at most this part of the free disk: the workers of a rank may crash with it."""
_MAX_CORES = 2
"""Cores that are there at once: a program may continue when one process after another of its crashes."""
_TRIM_S = 5.0
_FILTER = "0x11\n"
"""Memory in a core: a process's own, and the beginnings of files; no memory that is shared."""


def allow_core(box: Path, ranks: int, environment: Mapping[str, str]) -> None:
    """Let this process, and those that it starts, leave a bounded core file where that can be read."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if soft != 0 or hard == 0 or core_place(working_folder(box)) is None:
        return  # a limit that somebody else has set is theirs
    size = MAX_CORE if shutil.which("gdb", path=environment.get("PATH")) else NOTES_CORE
    limit = min(size, shutil.disk_usage(box).free // (_SHARE * max(1, ranks)))
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (limit if hard < 0 else min(limit, hard), hard))
        Path("/proc/self/coredump_filter").write_text(_FILTER)


def forbid_core(pid: int) -> None:
    """Keep another process from writing a core file: it is only asked for its Python stack."""
    with suppress(OSError, ValueError):
        hard = resource.prlimit(pid, resource.RLIMIT_CORE)[1]
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, hard))


def bounds_cores() -> bool:
    """Tell whether cores are there because of `allow_core`: this process has no limit of somebody else's."""
    return resource.getrlimit(resource.RLIMIT_CORE)[0] == 0


@dataclass(kw_only=True)
class CoreTrimmer:
    """Deletes all but the newest cores while the ranks run."""

    place: CorePlace | None
    """Folder of the cores; None: nothing is deleted."""
    since: float
    """Epoch seconds at which the ranks were started."""
    _due_at: float = 0.0

    @classmethod
    def of(cls, box: Path, since: float) -> CoreTrimmer:
        """Return the one for the program of a box."""
        return cls(place=core_place(working_folder(box)) if bounds_cores() else None, since=since)

    def look(self) -> None:
        """Delete what is too much, every few seconds; to be called more often than that."""
        now = time.monotonic()
        if self.place is not None and now >= self._due_at:
            self._due_at = now + _TRIM_S
            for core in self.place.written(self.since)[:-_MAX_CORES]:
                with suppress(OSError):
                    core.unlink()
