"""Neighbours: CPU seconds that the lease takes to end a box, beside processes of other boxes and without."""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.figures import Claim, in_turns, max_limit, show
from vastrun.contract import layout
from vastrun.launcher.package_files import onstart_dir

ROUNDS = 5
NEIGHBOURS = 8
"""Processes of other boxes, as a held machine or a computer with several runs has them."""
VARIABLES = 40
"""With our prefix, in the environment of each: about as many as a rank has."""
MAX_RATIO = max_limit(2.0)


def run() -> bool:
    """Print one line."""
    pair = in_turns(_measure_with_neighbours, _ended, ROUNDS)
    claim = Claim(pair.ratio, f"of an end without {NEIGHBOURS} processes of other boxes", MAX_RATIO)
    return show("end of a box", pair, "CPU s", claim, baseline="alone")


def _measure_with_neighbours() -> float:
    with _neighbours():
        return _ended()


@contextmanager
def _neighbours() -> Iterator[None]:
    env = {f"VASTRUN_NEIGHBOUR_{number}": "x" * 60 for number in range(VARIABLES)}
    sleeping = [subprocess.Popen(["sleep", "600"], env={**os.environ, **env}) for _ in range(NEIGHBOURS)]
    try:
        yield
    finally:
        for process in sleeping:
            process.kill()
            process.wait()


def _ended() -> float:
    """End a box in which one process is at work."""
    with tempfile.TemporaryDirectory() as root:
        box = Path(root) / "box"
        box.mkdir()
        worker = subprocess.Popen(["sleep", "600"], env={**os.environ, "VASTRUN_INSTANCE": "benchmark"})
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        script = str(onstart_dir() / layout.LEASE_SCRIPT)
        subprocess.run(["bash", script, "end", "benchmark", str(box)], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        worker.wait()
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
