"""How long a training stands still for a rank that was killed, and for one that hangs.

From the fault to the end of the next step that nobody had done before, with all that lies between: seen,
ended, started again, loaded, and the steps since the newest checkpoint done once more.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.box import config, environment, prepare
from benchmarks.figures import show_alone
from trainer import layout

ROUNDS = 5
STALL_S = 4.0
_FAULT_AT = 30
_WITHIN_S = 120.0

_HANGING = f"""\
import os
import threading
from trainer.data import advection
from trainer.data.trajectories import TrajectoryTask


class Hanging(TrajectoryTask):
    def batch(self, step, picks):
        if step == {_FAULT_AT} and os.environ["RANK"] == "1" and os.environ["VASTRUN_ATTEMPT"] == "0":
            threading.Event().wait()
        return super().batch(step, picks)


def make(config, folder):
    return Hanging(*advection.load(config, folder))


generate = advection.generate
"""


def run() -> None:
    """Prints two lines."""
    with tempfile.TemporaryDirectory() as root:
        killed = [_after_a_kill(Path(root) / f"killed-{number}") for number in range(ROUNDS)]
        hung = [_after_a_hang(Path(root) / f"hung-{number}") for number in range(ROUNDS)]
    show_alone("after a killed rank", killed, "s", "to the next new step (at most 6)")
    show_alone("after a hang", hung, "s", f"of which {STALL_S:g} are the deadline (at most {STALL_S + 5:g})")


def _after_a_kill(folder: Path) -> float:
    box = _prepare(folder, task="advection")
    with _training(box):
        _until(box, step=_FAULT_AT)
        record = json.loads((box / layout.RANKS / "rank-1.process.json").read_text())
        reached, began = _last(box)["step"], time.time()
        os.kill(record["pid"], signal.SIGKILL)
        return _until(box, step=reached + 1, since=began) - began


def _after_a_hang(folder: Path) -> float:
    box = _prepare(folder, task="hanging:make")
    with _training(box):
        began = _until(box, step=_FAULT_AT)
        return _until(box, step=_FAULT_AT + 1, since=began) - began


def _prepare(folder: Path, *, task: str) -> Path:
    code = folder.with_name("code")
    code.mkdir(exist_ok=True)
    (code / "hanging.py").write_text(_HANGING)
    usual = config(1_000_000)
    box = prepare(folder, replace(usual, log_every=1, checkpoint_every=20))
    job = json.loads((box / layout.JOB).read_text())
    job["stall_s"] = STALL_S
    job["train"]["data"][0]["task"] = task
    (box / layout.JOB).write_text(json.dumps(job))
    (box / layout.CODE).symlink_to(code)
    return box


@contextmanager
def _training(box: Path) -> Iterator[None]:
    """Under its supervisor; stopped at the end."""
    process = subprocess.Popen([sys.executable, "-m", "trainer.supervise"], env=environment(box))
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _until(box: Path, *, step: int, since: float = 0.0) -> float:
    """When a step at least as high was told, later than `since`."""
    deadline = time.monotonic() + _WITHIN_S
    while time.monotonic() < deadline:
        last = _last(box)
        if last["step"] >= step and last["at"] > since:
            return float(last["at"])
        time.sleep(0.02)
    raise TimeoutError(f"no step {step} in {box}")


def _last(box: Path) -> dict[str, Any]:
    path = box / layout.METRICS
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    whole = [line for line in lines if line.endswith("\n")]
    last: dict[str, Any] = json.loads(whole[-1]) if whole else {"step": 0, "at": 0.0}
    return last
