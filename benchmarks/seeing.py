"""What it costs to look: the live view's share of a core, and a line of a transcript."""

from __future__ import annotations

import fcntl
import json
import os
import struct
import subprocess
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.figures import Claim, max_limit, show_alone
from tests.fakes import FakeClock
from tests.jobs import train_job
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Phase, Progress, Run
from vastrun.launcher.core.job import Limits
from vastrun.launcher.core.secrets import Mask
from vastrun.launcher.outputs.disk import claim
from vastrun.launcher.transcript import Recorder
from vastrun.launcher.ui.live import LiveScreen
from vastrun.launcher.ui.question import HeldStream
from vastrun.launcher.ui.screens import downloaded_curves

SECONDS = 600
"""Of a training, in one round."""
ROUNDS = 5
CORE_PERCENT = max_limit(3.0)
CALL_US = max_limit(100.0)
_CALLS = 20_000
_PAINTS_PER_S = 4
"""As often as it paints at most; a launcher shows where a run stands as often as it asks the box."""
_LINES_PER_S = 20
"""Of the log."""
_STEPS = 3000


def run() -> bool:
    """Print two lines."""
    shares = [100 * _live() / SECONDS for _ in range(ROUNDS)]
    seen = show_alone("live view", shares, "% of a core", Claim(max(shares), "% at its most", CORE_PERCENT))
    calls = [_recorded() for _ in range(ROUNDS)]
    summary = show_alone("transcript, a call", calls, "us", Claim(max(calls), "us at its most", CALL_US))
    return seen and summary


def _live() -> float:
    """Seconds of a processor for all that is shown of a training in `SECONDS`, on a terminal that is read."""
    clock = FakeClock()
    with tempfile.TemporaryDirectory() as folder, _terminal() as terminal:
        run = _run(folder, clock.now())
        with _held(terminal) as stream, (Path(folder) / "metrics.jsonl").open("w") as metrics:
            screen = LiveScreen(stream, began=clock.now(), now=clock.now, curve_of=downloaded_curves())
            began = time.process_time()
            for tick in range(SECONDS * _PAINTS_PER_S):
                clock.sleep(1 / _PAINTS_PER_S)
                step = 1 + tick * _STEPS // (SECONDS * _PAINTS_PER_S)
                if tick % _PAINTS_PER_S == 0:
                    metrics.write(_metrics(step))
                    metrics.flush()
                    at = clock.now()
                    lines = (f"{at:.3f} rank0 step {step} line {number}\n" for number in range(_LINES_PER_S))
                    screen.log("".join(lines))
                progress = Progress(step=step, steps=_STEPS, loss=1 / step, left_s=60.0)
                screen.progress(run, progress, usd=tick / 1e4)
            cpu_s = time.process_time() - began
            screen.close()
    return cpu_s


def _metrics(step: int) -> str:
    figures = {"samples_per_s": 412.0, "gpu_load": 0.97, "gpu_power_w": 312.4, "gpu_temperature_c": 71.0}
    return json.dumps({"step": step, "loss": 1 / step, "lr": 1e-3, "grad_norm": 0.3, **figures}) + "\n"


def _run(folder: str, now: float) -> Run:
    return Run(
        id="calm-heron-0001",
        job="demo",
        spec_json=dump_job(replace(train_job(), limits=Limits(usd=5.0))),
        provider="vast",
        phase=Phase.TRAIN,
        out_dir=folder,
        created_at=now,
        phase_at=now,
        usd_per_hour=2.0,
    )


@contextmanager
def _held(terminal: int) -> Iterator[HeldStream]:
    """What a live view writes to, on that terminal."""
    with os.fdopen(os.dup(terminal), "w", encoding="utf-8") as stream:
        yield HeldStream(lambda: stream)


@contextmanager
def _terminal() -> Iterator[int]:
    """A terminal of 120 x 40 that another process reads."""
    keys, terminal = os.openpty()
    reader = subprocess.Popen(["cat"], stdin=keys, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        yield terminal
    finally:
        os.close(terminal)
        reader.terminate()
        reader.wait()
        os.close(keys)


def _recorded() -> float:
    """Microseconds of a processor for a call that is recorded, as a launcher makes them while it watches."""
    moment = [0.0]
    with tempfile.TemporaryDirectory() as folder:
        claim(Path(folder), "calm-heron-0001")
        mask = Mask(["a secret of the job", "another secret"])
        recorder = Recorder(Path(folder), "calm-heron-0001", {}, mask, now=lambda: moment[0])
        began = time.process_time()
        for number in range(_CALLS):
            moment[0] += 0.4
            recorder.call("remote.read", lambda _: b"x" * 200, f"run/{number % 5}")
        recorder.close()
        return (time.process_time() - began) / _CALLS * 1e6
