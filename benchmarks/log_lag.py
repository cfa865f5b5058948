"""Seconds from a print on the box to the launcher's terminal, on an emulated Vast."""

import re
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.figures import Claim, max_limit, report_claims
from tests.e2e.terminal import Terminal
from tests.emulators.machines import Machine
from tests.emulators.vast import VastEmulator

LINES = 300
P99_S = max_limit(0.2)
_JOB = """\
name: ticker
resources: {gpus: 0}
ranks: 1
limits: {hours: 0.1, usd: 1}
code: {path: code}
command: python ticker.py
success: {exit_code: 0}
"""
_TICKER = f"""\
import time

for _ in range({LINES}):
    print(f"printed at {{time.time():.6f}}", flush=True)
    time.sleep(0.1)
"""
_PRINTED = re.compile(r"printed at ([\d.]+)\n")


def run() -> bool:
    """Print one line."""
    with tempfile.TemporaryDirectory() as folder, VastEmulator([Machine(id=41000)]) as vast:
        terminal = Terminal(Path(folder), **vast.variables)
        lags = _lags(terminal)
    p99_s = statistics.quantiles(lags, n=100)[98]
    measured = f"median {statistics.median(lags):.2f} s   n={len(lags)} lines of one run"
    return report_claims("print to terminal", measured, Claim(p99_s, "s at the 99th percentile", P99_S))


def _lags(terminal: Terminal) -> list[float]:
    (terminal.folder / "code").mkdir()
    (terminal.folder / "code" / "ticker.py").write_text(_TICKER)
    (terminal.folder / "job.yaml").write_text(_JOB)
    launch = terminal.start("launch", "job.yaml", "--provider", "vast", "-y")
    lags: list[float] = []
    seen = 0
    while launch.process.poll() is None:
        shown, now = launch.err, time.time()
        printed = _PRINTED.findall(shown)
        lags += [now - float(at) for at in printed[seen:]]
        seen = len(printed)
        time.sleep(0.01)
    launch.end()
    return lags
