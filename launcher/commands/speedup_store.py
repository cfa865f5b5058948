"""Store of measured speed-ups on this computer's disk, by job and model of GPU, for `plan`."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from vastrun.contract.records import as_json, read_json, write_atomically
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.speedup import Speedup, speedup_key

_MAX_BYTES = 1 << 16
MAX_KEPT = 200
"""Max. number of speed-ups that are kept, the newest."""


class SpeedupStore:
    """Speed-ups in the cache folder, a file for each job and model of GPU."""

    def __init__(self, cache: Path) -> None:
        self.folder = cache / "speedups"

    def load(self, spec: JobSpec) -> dict[str, Speedup]:
        """Return the speed-ups of the job that were measured, by kind of GPU."""
        found: dict[str, Speedup] = {}
        for path in sorted(self.folder.glob(f"{speedup_key(spec)}.*.json"))[:MAX_KEPT]:
            with suppress(OSError, ValueError), path.open("rb") as file:
                speedup: Speedup = read_json(Speedup, file.read(_MAX_BYTES))
                found[speedup.gpu] = speedup
        return found

    def save(self, spec: JobSpec, speedup: Speedup) -> None:
        """Keep the speed-up in place of an earlier one, and remove the oldest others beyond a limit."""
        kind = re.sub(r"[^0-9A-Za-z]+", "-", speedup.gpu) or "cpu"
        write_atomically(self.folder / f"{speedup_key(spec)}.{kind}.json", as_json(speedup))
        for path in sorted(self.folder.glob("*.json"), key=_changed_at, reverse=True)[MAX_KEPT:]:
            path.unlink(missing_ok=True)


def _changed_at(path: Path) -> float:
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0
