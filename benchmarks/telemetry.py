"""What telemetry costs: steps with clock, reports and garbage collected by the step, and the same steps bare.

`python -m benchmarks.telemetry` is a rank of torchrun that takes them in turns; a line of JSON for each pair.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path

from benchmarks.box import config, prepare, train_by_hand
from benchmarks.figures import Claim, Pair, max_limit, show
from vastrun.contract.heartbeat import Heartbeat
from vastrun.contract.job import Job
from vastrun.trainer.distributed.clock import StepClock, StepTimes
from vastrun.trainer.distributed.group import join
from vastrun.trainer.distributed.rank import Rank
from vastrun.trainer.engine.resume import resume_session
from vastrun.trainer.engine.session import Session
from vastrun.trainer.engine.session_builder import set_up
from vastrun.trainer.engine.step import train_step
from vastrun.trainer.job.config import WandbConfig
from vastrun.trainer.telemetry.garbage import collect_at_step
from vastrun.trainer.telemetry.metrics import Metrics
from vastrun.trainer.telemetry.reports import Readings, Reports

PAIRS = 20
STEPS = 10
"""Of each turn: as many as between two reports."""
COST = max_limit(0.01)
"""Of a step."""


def run() -> bool:
    """Print one line."""
    with tempfile.TemporaryDirectory() as root:
        settings = replace(config(1), batch=64, wandb=WandbConfig(mode="offline"))
        records = train_by_hand(prepare(Path(root) / "box", settings, ranks=1), "benchmarks.telemetry")
    pair = Pair(
        candidate=[record["with"] for record in records], baseline=[record["without"] for record in records]
    )
    claim = Claim(pair.ratio - 1, "of a step more", COST)
    return show("telemetry", pair, "s a step", claim)


class NoClock(StepClock):
    """Stamps nothing."""

    def begin(self) -> None:
        pass

    def waiting_for_data(self) -> AbstractContextManager[None]:
        return nullcontext()

    def meet(self) -> None:
        pass

    def end(self) -> None:
        pass

    def look(self) -> StepTimes | None:
        return None


def main() -> None:
    rank = Rank.of_environment()
    job = Job.read(rank.box)
    assert job.train is not None
    session = resume_session(set_up(join(rank, job), job, job.train))
    bare = replace(session, clock=NoClock(session.ranks.device))
    with Metrics(rank.box, job, job.train) as metrics:
        metrics.begin_at(0, session.wandb_id)
        reports = Reports(session, metrics, Readings.of(session.ranks.device))
        heart = Heartbeat.of_this_rank()
        for number in range(PAIRS):
            first = 2 * number * STEPS
            reported_s = _seconds(_with_reports, session, reports, heart, first)
            bare_s = _seconds(_bare, bare, heart, first + STEPS)
            print(json.dumps({"with": reported_s, "without": bare_s}), flush=True)
    sys.stdout.flush()
    os._exit(0)


def _with_reports(session: Session, reports: Reports, heart: Heartbeat, first: int) -> None:
    for step in range(first, first + STEPS):
        session.clock.begin()
        _, losses = train_step(session, step, heart)
        session.clock.end()
        collect_at_step(step + 1, 0)
    with redirect_stdout(None):
        reports.report(first + STEPS, losses)
    gc.enable()


def _bare(session: Session, heart: Heartbeat, first: int) -> None:
    for step in range(first, first + STEPS):
        _, (loss, _) = train_step(session, step, heart)
    loss.item()


def _seconds(work: Callable[..., None], *arguments: object) -> float:
    began = time.perf_counter()
    work(*arguments)
    return (time.perf_counter() - began) / STEPS


if __name__ == "__main__":
    main()
