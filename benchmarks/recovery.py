"""How long a training stands still for a rank that was killed, and for one that hangs.

From the fault to the end of the next step that nobody had done before, with all that lies between: seen,
ended, started again, loaded, and the steps since the newest checkpoint done once more. The kill comes just
after a checkpoint, since those steps are up to `checkpoint_every`; the hang ten steps after one. Beside it,
in turns: a bare start, from `torchrun` by hand to its first step, which moves with the computer's speed.
"""

import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.box import config, environment, prepare
from benchmarks.figures import Claim, Pair, max_limit, rounds_of, show
from benchmarks.launches import by_hand
from tests.waiting import eventually
from vastrun.contract import layout

ROUNDS = 5
STALL_S = 4.0
AFTER_A_KILL = max_limit(0.4)
"""Of a bare start."""
AFTER_A_HANG_S = max_limit(2 * STALL_S)
"""The deadline, and as much again, until a new step is done."""
HANDLED_S = max_limit(2.0)
"""From the deadline to the first step of the new ranks, which was done before."""
_SAVED_AT, _FAULT_AT = 20, 30
_WITHIN_S = 120.0

_HANGING = f"""\
import os
import threading
from vastrun.trainer.data import advection
from vastrun.trainer.data.trajectories import TrajectoryTask


class Hanging(TrajectoryTask):
    def batch(self, step, indices):
        if step == {_FAULT_AT} and os.environ["RANK"] == "1" and os.environ["VASTRUN_RESTART"] == "0":
            threading.Event().wait()
        return super().batch(step, indices)


def make(config, folder):
    return Hanging(*advection.load(config, folder))


generate = advection.generate
"""


def run() -> bool:
    """Print two lines."""
    numbers = itertools.count()
    with tempfile.TemporaryDirectory() as root:

        def new(kind: str) -> Path:
            return Path(root) / f"{kind}-{next(numbers)}"

        rounds = rounds_of(
            [
                lambda: _after_a_kill(new("killed")),
                lambda: _after_a_hang(new("hung")),
                lambda: by_hand(new("bare")).first_step_s,
            ],
            ROUNDS,
        )
    killed, hung, bare = zip(*rounds, strict=True)
    return all(
        [
            _show_kill(Pair(candidate=killed, baseline=bare)),
            _show_hang(
                Pair(candidate=[caught_up for _, caught_up in hung], baseline=bare),
                handled=[resumed - STALL_S for resumed, _ in hung],
            ),
        ]
    )


def _show_kill(pair: Pair) -> bool:
    claim = Claim(pair.ratio, "of a bare start", AFTER_A_KILL)
    return show("after a killed rank", pair, "s", claim, baseline="a bare start")


def _show_hang(pair: Pair, *, handled: Sequence[float]) -> bool:
    beyond = Pair(candidate=[seconds - STALL_S for seconds in pair.candidate], baseline=pair.baseline)
    claims = [
        Claim(statistics.median(pair.candidate), f"s, {STALL_S:g} of them the deadline", AFTER_A_HANG_S),
        Claim(beyond.ratio, "of a bare start beyond that"),
        Claim(statistics.median(handled), "s from the deadline to the first step, done once more", HANDLED_S),
    ]
    return show("after a hang", pair, "s", *claims, baseline="a bare start")


def _after_a_kill(folder: Path) -> float:
    box = _prepare(folder, task="advection")
    with _training(box):
        _until(box, step=_SAVED_AT + 1)
        eventually(lambda: list((box / layout.CHECKPOINTS).glob("step-*/manifest.json")), what="a checkpoint")
        record = json.loads((box / layout.RANKS / "rank-1.process.json").read_text())
        reached, began = _last(box)["step"], time.time()
        os.kill(record["pid"], signal.SIGKILL)
        return _until(box, step=reached + 1, since=began) - began


def _after_a_hang(folder: Path) -> tuple[float, float]:
    """Seconds to the first step of the new ranks, and to the first that nobody had done before."""
    box = _prepare(folder, task="hanging:make")
    with _training(box):
        began = _until(box, step=_FAULT_AT)
        resumed = _until(box, step=_SAVED_AT + 1, since=began)
        return resumed - began, _until(box, step=_FAULT_AT + 1, since=began) - began


def _prepare(folder: Path, *, task: str) -> Path:
    code = folder.with_name("code")
    code.mkdir(exist_ok=True)
    (code / "hanging.py").write_text(_HANGING)
    usual = config(1_000_000)
    box = prepare(folder, replace(usual, log_every=1, checkpoint_every=_SAVED_AT))
    job = json.loads((box / layout.JOB).read_text())
    job["stall_s"] = STALL_S
    job["program"]["config"]["data"][0]["task"] = task
    (box / layout.JOB).write_text(json.dumps(job))
    (box / layout.CODE).symlink_to(code)
    return box


@contextmanager
def _training(box: Path) -> Iterator[None]:
    """Under its supervisor; stopped at the end."""
    process = subprocess.Popen([sys.executable, "-m", "vastrun.onstart.supervise"], env=environment(box))
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
