"""Five runs in a row of each strategy: killed twice, continued by as many ranks, then by another number.

Each must have the losses of a run that nobody disturbed. False when one crashed or went elsewhere.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.box import config, environment, prepare
from benchmarks.figures import Claim, at_most, tell
from trainer.contract import layout
from trainer.contract.config import WandbConfig
from trainer.heartbeat import read_beat

RUNS = 5
STRATEGIES = ("ddp", "fsdp2")
STEPS, SAVE_EVERY = 60, 10
TOLERANCE = at_most(1e-6)
_WITHIN_S = 180.0


def run(seed: int = 0) -> bool:
    """A line for each run."""
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as root:
        results = [_holds(Path(root), strategy, dice) for strategy in STRATEGIES]
    return all(results)


def _holds(root: Path, strategy: str, dice: random.Random) -> bool:
    whole = _box(root / f"{strategy}-undisturbed", strategy)
    _train(whole, ranks=2)
    aim, good = _losses(whole), True
    for number in range(RUNS):
        box, last = _box(root / f"{strategy}-{number}", strategy), dice.choice([1, 4])
        kills = sorted(dice.sample(range(SAVE_EVERY + 2, STEPS - 5), 2))
        for step in kills:
            _train(box, ranks=2, kill_at=step)
        _train(box, ranks=last)
        off = max(abs(loss - due) for loss, due in zip(_losses(box), aim, strict=True))
        told = f"killed at {kills[0]} and {kills[1]}, ended by {last} ranks"
        good &= tell(f"{strategy} x2, run {number + 1}", told, Claim(off, "off in any loss", TOLERANCE))
    return good


def _box(folder: Path, strategy: str) -> Path:
    small = replace(config(STEPS), strategy=strategy, batch=16, wandb=WandbConfig(mode="off"))
    return prepare(folder, replace(small, log_every=1, checkpoint_every=SAVE_EVERY))


def _train(box: Path, *, ranks: int, kill_at: int | None = None) -> None:
    """To the end, or until the last rank is killed in that step. Raises RuntimeError if it goes otherwise."""
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    process = subprocess.Popen(
        [sys.executable, *launch, "-m", "trainer.train"],
        env=environment(box),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if kill_at is not None:
        _kill(process, box / layout.HEARTBEATS / f"rank-{ranks - 1}", kill_at)
    said, _ = process.communicate(timeout=_WITHIN_S)
    if (process.returncode == 0) != (kill_at is None):
        raise RuntimeError(f"ended with {process.returncode}:\n{said[-3000:]}")


def _kill(launch: subprocess.Popen[str], heartbeat: Path, step: int) -> None:
    """The rank of that heartbeat is killed in that step, or all of them when it does not come there."""
    since, deadline = time.time(), time.monotonic() + _WITHIN_S
    while launch.poll() is None and time.monotonic() < deadline:
        beat = read_beat(heartbeat)
        if beat is not None and beat.at > since and beat.step >= step:
            os.kill(beat.pid, signal.SIGKILL)
            return
        time.sleep(0.001)
    launch.terminate()


def _losses(box: Path) -> list[float]:
    """Of each step."""
    points = map(json.loads, (box / layout.METRICS).read_text().splitlines())
    losses = {point["step"]: point["loss"] for point in points}
    return [losses[step] for step in range(1, STEPS + 1)]
