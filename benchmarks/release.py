"""Seconds from the last output at home to the call that destroys the machine, on an emulated Vast."""

import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.figures import Claim, max_limit, show_alone
from tests.e2e.terminal import Terminal
from tests.emulators.machines import Machine
from tests.emulators.vast import VastEmulator
from vastrun.contract import layout

ROUNDS = 5
SLOWEST_S = max_limit(2.0)
_JOB = """\
name: quick
resources: {gpus: 0}
ranks: 1
limits: {hours: 0.1, usd: 1}
command: python -c "open('result.txt', 'w').write('42')"
success: {files: result.txt}
outputs: result.txt
"""


def run() -> bool:
    """Print one line."""
    values = [_seconds() for _ in range(ROUNDS)]
    claim = Claim(statistics.median(values), "s until the machine's end is asked for", SLOWEST_S)
    return show_alone("outputs to destroy", values, "s", claim)


def _seconds() -> float:
    with tempfile.TemporaryDirectory() as folder, VastEmulator([Machine(id=41000)]) as vast:
        terminal = Terminal(Path(folder), **vast.variables)
        (terminal.folder / "job.yaml").write_text(_JOB)
        launch = terminal.start("launch", "job.yaml", "--provider", "vast", "-y")
        collected = asked = 0.0
        while launch.process.poll() is None and not asked:
            if not collected and list(vast.folder.glob(f"C.*/root/vastrun/{layout.COLLECTED}")):
                collected = time.monotonic()
            if any(method == "DELETE" for method, _ in vast.requests):
                asked = time.monotonic()
            time.sleep(0.002)
        done = launch.end()
        assert done.exit_code == 0, done.err[-2000:]
    return asked - (collected or asked)
