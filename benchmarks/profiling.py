"""What a profile costs: steps before and after the recorded ones, beside steps without a profiler.

`python -m benchmarks.profiling` is a rank of torchrun that takes them in turns; a line of JSON a round.
On an idle computer: steps are compared to a few percent, and other programs take more than that from a step.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

from benchmarks.box import prepare, train_by_hand
from benchmarks.figures import Claim, Pair, max_limit, show
from vastrun.contract.heartbeat import Heartbeat
from vastrun.contract.job import Job
from vastrun.trainer.distributed.group import join
from vastrun.trainer.distributed.rank import Rank
from vastrun.trainer.distributed.signals import StopSignal
from vastrun.trainer.engine.resume import resume_session
from vastrun.trainer.engine.session import Session
from vastrun.trainer.engine.session_builder import set_up
from vastrun.trainer.engine.step import train_step
from vastrun.trainer.job.config import OptimConfig, ProfileConfig, TrainConfig
from vastrun.trainer.telemetry.profiler import Profiler

ROUNDS = 10
STEPS = 30
"""Of each part of a round."""
RECORDED = 5
COST = max_limit(0.03)
"""Of a step."""


def run() -> bool:
    """Print a line for the steps before, within and after a profile."""
    with tempfile.TemporaryDirectory() as root:
        # A rank of the quick start.
        settings = TrainConfig(steps=10**6, batch=12, optim=OptimConfig(name="muon", lr=0.01))
        records = train_by_hand(prepare(Path(root) / "box", settings, ranks=1), "benchmarks.profiling")
    usual = [record["usual"] for record in records]
    results = []
    for part, limit in (("before", COST), ("recorded", None), ("after", COST)):
        pair = Pair(candidate=[record[part] for record in records], baseline=usual)
        claim = Claim(pair.ratio - 1, "of a step more", limit)
        results.append(show(f"steps, {part}", pair, "s a step", claim))
    pause_s = statistics.median(record["pause"] for record in records)
    print(f"pause after {RECORDED} recorded steps: {pause_s:.3f} s")
    return all(results)


def main() -> None:
    rank = Rank.of_environment()
    job = Job.read(rank.box)
    assert job.train is not None
    session, heart = resume_session(set_up(join(rank, job), job, job.train)), Heartbeat.of_this_rank()
    stop = StopSignal(lambda: None, min_s=1, grace_s=1, saving_grace_s=1)
    _usual(session, heart, 0)
    for number in range(ROUNDS):
        first = (4 * number + 1) * STEPS
        usual = _usual(session, heart, first)
        options = ProfileConfig(step=first + 2 * STEPS, steps=RECORDED)
        profiler = Profiler(rank, replace(job.train, profile=options), heart, stop)
        with redirect_stdout(sys.stderr):
            times = _profiled(session, profiler, first + STEPS, 2 * STEPS + RECORDED)
        record = {
            "usual": usual,
            "before": statistics.median(times[: STEPS - 1]),
            "recorded": statistics.median(times[STEPS : STEPS + RECORDED - 1]),
            "after": statistics.median(times[STEPS + RECORDED :]),
            "pause": times[STEPS + RECORDED - 1] - statistics.median(times[STEPS : STEPS + RECORDED - 1]),
        }
        print(json.dumps(record), flush=True)
    os._exit(0)


def _usual(session: Session, heart: Heartbeat, first: int) -> float:
    """Return the seconds of a step without a profiler."""
    times = []
    for step in range(first, first + STEPS):
        began = time.perf_counter()
        train_step(session, step, heart)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _profiled(session: Session, profiler: Profiler, first: int, count: int) -> list[float]:
    """Return the seconds of each step, with what the profiler does before and after it."""
    times = []
    with profiler:
        profiler.begin_at(first)
        for step in range(first, first + count):
            began = time.perf_counter()
            with profiler.step(step) as heart:
                train_step(session, step, heart)
            times.append(time.perf_counter() - began)
    return times


if __name__ == "__main__":
    main()
