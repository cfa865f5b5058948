"""A log of 100 MB, followed to its end on an emulated Vast: what the launcher's memory grows by."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.figures import Claim, max_limit, report_claims
from tests.e2e.terminal import Launch, Terminal
from tests.emulators.machines import Machine
from tests.emulators.vast import VastEmulator

SIZE_MB = 100
_EARLY_MB = 10
"""So much of the log is home before memory is taken as what it is."""
GROWTH_MB = max_limit(20.0)
_JOB = """\
name: talker
resources: {gpus: 0}
ranks: 1
limits: {hours: 0.2, usd: 1}
code: {path: code}
command: python talker.py
success: {log: "the last line"}
"""
_TALKER = f"""\
for number in range({SIZE_MB * 10_000}):
    print(f"{{number:08}} " + "x" * 90)
print("the last line")
"""


def run() -> bool:
    """Print one line."""
    with tempfile.TemporaryDirectory() as folder, VastEmulator([Machine(id=41000)]) as vast:
        terminal = Terminal(Path(folder), **vast.variables)
        (terminal.folder / "code").mkdir()
        (terminal.folder / "code" / "talker.py").write_text(_TALKER)
        (terminal.folder / "job.yaml").write_text(_JOB)
        launch = terminal.start("launch", "job.yaml", "--provider", "vast", "-y")
        early_mb, max_mb, seconds = _memory(launch, terminal.folder)
        done = launch.end()
        assert done.exit_code == 0, done.err[-2000:]
        home_mb = _home_mb(terminal.folder)
    measured = (
        f"{home_mb:.0f} MB home in {seconds:.0f} s, memory {early_mb:.0f} MB after {_EARLY_MB} MB   n=1"
    )
    growth = Claim(max_mb - early_mb, "MB more at its most", GROWTH_MB)
    return report_claims(f"log of {SIZE_MB} MB", measured, growth)


def _memory(launch: Launch, folder: Path) -> tuple[float, float, float]:
    """The launcher's memory early and at its most, in MB; and how long the log took."""
    process = psutil.Process(launch.process.pid)
    early_mb = max_mb = began = 0.0
    while launch.process.poll() is None:
        home_mb = _home_mb(folder)
        if home_mb > 0 and not began:
            began = time.monotonic()
        if home_mb >= _EARLY_MB and process.status() != psutil.STATUS_ZOMBIE:
            now_mb = process.memory_info().rss / 1e6
            early_mb = early_mb or now_mb
            max_mb = max(max_mb, now_mb)
        time.sleep(0.05)
    return early_mb, max_mb, time.monotonic() - began


def _home_mb(folder: Path) -> float:
    return sum(log.stat().st_size for log in folder.glob("runs/*/log.txt")) / 1e6
