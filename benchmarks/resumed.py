"""Runs that are killed and continued have the losses of a run that nobody disturbed.

Five runs in a row of each strategy: killed twice, continued by as many ranks, then by another number. And one
long one of FSDP2, without an average of the weights, that is evaluated again and again: killed three times.
False when one crashed or went elsewhere.
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
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from benchmarks.box import config, environment, prepare
from benchmarks.figures import Claim, max_limit, report_claims
from vastrun.contract import layout
from vastrun.contract.heartbeat import read_beat
from vastrun.trainer.job.config import ModelConfig, TrainConfig, WandbConfig

RUNS = 5
Strategy = Literal["ddp", "fsdp2"]
STRATEGIES: tuple[Strategy, ...] = ("ddp", "fsdp2")
STEPS, SAVE_EVERY = 60, 10
LONG_STEPS, LONG_SAVE_EVERY, LONG_LOOK_EVERY, LONG_KILLS = 1_000, 50, 100, 3
TOLERANCE = max_limit(1e-6)
_WITHIN_S = 900.0


def run(seed: int = 0) -> bool:
    """A line for each run."""
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as root:
        results = [_holds(Path(root), strategy, dice) for strategy in STRATEGIES]
        results.append(_long_one_holds(Path(root), dice))
    return all(results)


def _holds(root: Path, strategy: Strategy, dice: random.Random) -> bool:
    aim, good = _undisturbed(root / f"{strategy}-undisturbed", _config(strategy)), True
    for number in range(RUNS):
        last = dice.choice([1, 4])
        kills = sorted(dice.sample(range(SAVE_EVERY + 2, STEPS - 5), 2))
        off = _disturbed(root / f"{strategy}-{number}", _config(strategy), kills, last, aim)
        summary = f"killed at {kills[0]} and {kills[1]}, ended by {last} ranks"
        good &= report_claims(
            f"{strategy} x2, run {number + 1}", summary, Claim(off, "off in any loss", TOLERANCE)
        )
    return good


def _long_one_holds(root: Path, dice: random.Random) -> bool:
    aim = _undisturbed(root / "long-undisturbed", _long_config())
    kills = sorted(dice.sample(range(LONG_SAVE_EVERY + 2, LONG_STEPS - 5), LONG_KILLS))
    off = _disturbed(root / "long", _long_config(), kills, 2, aim)
    summary = f"{LONG_STEPS} steps, a look every {LONG_LOOK_EVERY}, killed at {', '.join(map(str, kills))}"
    return report_claims("fsdp2 x2, evaluated", summary, Claim(off, "off in any loss", TOLERANCE))


def _undisturbed(folder: Path, config: TrainConfig) -> list[float]:
    """Losses of a run to its end."""
    box = prepare(folder, config)
    train_on(box, ranks=2)
    return _losses(box, config.steps)


def _disturbed(
    folder: Path, config: TrainConfig, kills: Sequence[int], last: int, aim: Sequence[float]
) -> float:
    """How far any loss is off in a run that is killed at these steps, and then ended by `last` ranks."""
    box = prepare(folder, config)
    for step in kills:
        train_on(box, ranks=2, kill_at=step)
    train_on(box, ranks=last)
    return max(abs(loss - due) for loss, due in zip(_losses(box, config.steps), aim, strict=True))


def _config(strategy: Strategy) -> TrainConfig:
    small = replace(config(STEPS), strategy=strategy, batch=16, wandb=WandbConfig(mode="off"))
    return replace(small, log_every=1, checkpoint_every=SAVE_EVERY)


def _long_config() -> TrainConfig:
    """A model so small that 1,000 steps take a minute."""
    usual = replace(config(LONG_STEPS), strategy="fsdp2", batch=8, unroll=2, log_every=1, plots=False)
    data = tuple(replace(each, train=32, test=8, validation=4, points=32, frames=9) for each in usual.data)
    return replace(
        usual,
        data=data,
        model=ModelConfig(dim=32, depth=2, heads=2, patch=4),
        wandb=WandbConfig(mode="off"),
        checkpoint_every=LONG_SAVE_EVERY,
        evaluate_every=LONG_LOOK_EVERY,
    )


def train_on(box: Path, *, ranks: int, kill_at: int | None = None) -> None:
    """To the end, or until the last rank is killed in that step. Raises RuntimeError if it goes otherwise."""
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    process = subprocess.Popen(
        [sys.executable, *launch, "-m", "vastrun.trainer.train"],
        env=environment(box),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if kill_at is not None:
        _kill(process, box / layout.HEARTBEATS / f"rank-{ranks - 1}", kill_at)
    output, _ = process.communicate(timeout=_WITHIN_S)
    if (process.returncode == 0) != (kill_at is None):
        raise RuntimeError(f"ended with {process.returncode}:\n{output[-3000:]}")


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


def _losses(box: Path, steps: int) -> list[float]:
    """Of each step."""
    points = map(json.loads, (box / layout.METRICS).read_text().splitlines())
    losses = {point["step"]: point["loss"] for point in points if "loss" in point}
    return [losses[step] for step in range(1, steps + 1)]
