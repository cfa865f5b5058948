"""What the agreements of the ranks cost: votes on stopping, means of the losses, comparisons of the replicas.

A rank of `torchrun`; rank 0 prints the seconds of each as a line of JSON.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.box import train_by_hand
from benchmarks.workload import Workload
from vastrun.contract.job import Job
from vastrun.trainer.checks import check_replicas
from vastrun.trainer.distributed.group import VOTE_INTERVAL_S, join
from vastrun.trainer.distributed.rank import Rank

TIMES = 50


def shares(box: Path, *, step_s: float) -> dict[str, float]:
    """The share of the time that each takes when a step takes so long."""
    config = Job.read(box).train
    assert config is not None
    (costs,) = train_by_hand(box, "benchmarks.agreements")
    every_s = {
        "votes": max(VOTE_INTERVAL_S, step_s),
        "means": config.log_every * step_s,
        "replicas": config.check_every * step_s,
    }
    return {name: costs[name] / every_s[name] for name in costs}


def main() -> None:
    rank = Rank.of_environment()
    ranks, workload = join(rank, Job.read(rank.box)), Workload.of_environment()
    number = torch.zeros((), device=ranks.device)
    agreements: dict[str, Callable[[], object]] = {
        "votes": lambda: ranks.all_reduce_max(0.0, 0.0, 0.0, 0.0),
        "means": lambda: ranks.mean_of(number, number),
        "replicas": lambda: check_replicas(ranks, 1, workload.objective, {"the loss": 0.0}),
    }
    costs = {name: _seconds(agree, ranks.wait_for_all) for name, agree in agreements.items()}
    if rank.is_first:
        print(json.dumps(costs))
    sys.stdout.flush()
    os._exit(0)


def _seconds(agree: Callable[[], object], meet: Callable[[], None]) -> float:
    """The median of many, each begun by all ranks at once."""
    took = []
    for _ in range(TIMES):
        meet()
        began = time.perf_counter()
        agree()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


if __name__ == "__main__":
    main()
