"""Launcher memory: the peak of one run, of a long list of outputs, and of a batch of 20, on this computer."""

import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.figures import Claim, max_limit, rounds_of, show_alone
from tests.e2e.market import machines
from tests.e2e.terminal import Terminal
from tests.emulators.vast import VastEmulator
from vastrun.launcher.commands.doctor import LAUNCHER_MB

ROUNDS, POINTS, FILES = 2, 20, 20_000
_LAUNCH, _SUBMIT = ("launch", "job.yaml"), ("batch", "submit", "batch.yaml")
_JOB = """\
name: memory
resources: {{gpus: 0}}
ranks: 1
limits: {{hours: 0.2, usd: 1}}
command: python work.py {files}
success: {{log: all is well}}
outputs: out
code: {{path: code}}
"""
_WORK = """\
import sys, time
from pathlib import Path
Path("out").mkdir(exist_ok=True)
for number in range(int(sys.argv[1])):
    Path(f"out/{number}").write_text(str(number))
for step in range(20):
    print(f"step {step}", flush=True)
    time.sleep(0.2)
print("all is well", flush=True)
"""
_BATCH = """\
name: memory
job: job.yaml
grid: {{env.POINT: [{points}]}}
limits: {{parallel: {at_once}, usd: 20}}
"""


def run() -> bool:
    """Print a line for each. True when no launcher took more than `vastrun doctor` says."""
    ways = {
        "one run on this computer": partial(_local_mb, 1, *_LAUNCH),
        f"{FILES} outputs on this computer": partial(_local_mb, FILES, *_LAUNCH),
        f"{POINTS} points on this computer": partial(_local_mb, 1, *_SUBMIT),
        "one run on Vast": partial(_vast_mb, *_LAUNCH),
        f"{POINTS} points on Vast, 4 at once": partial(_vast_mb, *_SUBMIT),
    }
    measured = zip(*rounds_of([*ways.values()], ROUNDS), strict=True)
    held = [
        show_alone(name, values, "MB", Claim(max(values), "MB at most", max_limit(LAUNCHER_MB)))
        for name, values in zip(ways, measured, strict=True)
    ]
    return all(held)


def _local_mb(files: int, *arguments: str) -> float:
    with tempfile.TemporaryDirectory(prefix="memory-") as folder:
        return _peak_mb(Terminal(Path(folder)), POINTS, files, *arguments, "--provider", "local")


def _vast_mb(*arguments: str) -> float:
    with tempfile.TemporaryDirectory(prefix="memory-") as folder, VastEmulator(machines(6)) as vast:
        terminal = Terminal(Path(folder), **vast.variables)
        return _peak_mb(terminal, 4, 1, *arguments, "--provider", "vast", "-y")


def _peak_mb(terminal: Terminal, at_once: int, files: int, *arguments: str) -> float:
    """The launcher's own peak, without its ranks, which are processes of the box."""
    points = ", ".join(f"p{number}" for number in range(POINTS))
    (terminal.folder / "code").mkdir()
    (terminal.folder / "code" / "work.py").write_text(_WORK)
    (terminal.folder / "job.yaml").write_text(_JOB.format(files=files))
    (terminal.folder / "batch.yaml").write_text(_BATCH.format(points=points, at_once=at_once))
    launch, peak_mb = terminal.start(*arguments), 0.0
    while launch.process.poll() is None:
        peak_mb = _high_water_mb(launch.process.pid) or peak_mb
        time.sleep(0.02)
    done = launch.end()
    assert done.exit_code == 0, done.err[-2000:]
    return peak_mb


def _high_water_mb(pid: int) -> float:
    """0 for a process that has ended."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((float(line.split()[1]) / 1000 for line in lines if line.startswith("VmHWM")), 0.0)
