"""GB/s of micro-batches that are read ahead, beside the same windows read by hand and beside a plain copy.

A plain copy is less work: it moves one piece of memory, where a batch is 64 windows from anywhere in the
data, each of them turned around the circle. How many times faster it is, is the machine's: a window costs
some 10 us of Python however fast the memory is. So it has no limit, and stands there to be compared.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from benchmarks import reads
from benchmarks.figures import Claim, Limit, Pair, min_limit, rounds_of, show
from benchmarks.reads import BATCH, DATA, STEPS, UNROLL, Take
from vastrun.trainer import data
from vastrun.trainer.data import Task, advection
from vastrun.trainer.engine.session_builder import space_of
from vastrun.trainer.job.config import LoaderConfig
from vastrun.trainer.job.data_config import Keep
from vastrun.trainer.loading import make_task_loader
from vastrun.trainer.sampling.windows import SamplePlan

ROUNDS = 15
CPU = torch.device("cpu")
OF_GATHERED = min_limit(0.67)
OF_MAPPED = min_limit(0.7)


def run() -> bool:
    """Print three lines for trajectories in memory and two for those on disk."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        advection.generate(DATA, folder)
        return all(
            [_run_shifted(folder, "host", OF_GATHERED), _run_mapped(folder), _run_shifted(folder, "disk")]
        )


def _run_shifted(folder: Path, keep: Keep, limit: Limit | None = None) -> bool:
    task = _task(keep, folder)
    sample_plan = _sample_plan(task)
    by_hand = {"host": reads.gathered, "disk": reads.read}[keep](folder, sample_plan)
    pair, copied = _beside(task, sample_plan, [by_hand, reads.plain_copy()])
    name, words = f"loader, from {keep}", "of the same windows read by hand"
    return all(
        [
            show(name, pair, "GB/s", Claim(pair.ratio, words, limit)),
            show("  beside a plain copy", copied, "GB/s", Claim(copied.ratio, "of it"), baseline="copy"),
        ]
    )


def _run_mapped(folder: Path) -> bool:
    """That read shifts nothing, so ours does not."""
    task = _task("host", folder)
    sample_plan = _sample_plan(task, shifted=False)
    (pair,) = _beside(task, sample_plan, [reads.mapped(folder, sample_plan)])
    return show("  unshifted", pair, "GB/s", Claim(pair.ratio, "of a memory-mapped read", OF_MAPPED))


def _beside(task: Task, sample_plan: SamplePlan, others: list[Take]) -> list[Pair]:
    """The loader beside each of the others, all in turns."""
    loader = make_task_loader(task, sample_plan, LoaderConfig(), ROUNDS * STEPS, CPU)
    steps = itertools.count()
    ways: list[Take] = [lambda _: loader.read(next(steps), 0).fields.nbytes, *others]
    candidate, *baseline = zip(*rounds_of([partial(_gb_per_s, way) for way in ways], ROUNDS), strict=True)
    loader.close()
    return [Pair(candidate=candidate, baseline=column) for column in baseline]


def _task(keep: Keep, folder: Path) -> Task:
    task = data.make_task(replace(DATA, keep=keep), folder)
    task.place(CPU)
    return task


def _sample_plan(task: Task, *, shifted: bool = True) -> SamplePlan:
    space = space_of(task.train, UNROLL)
    if not shifted:
        space = replace(space, symmetry="none")
    return SamplePlan(seed=0, batch=BATCH, noise=0.0, space=space, rank=0, world_size=1, accumulation=1)


def _gb_per_s(take: Take) -> float:
    began = time.perf_counter()
    total = sum(take(step) for step in range(STEPS))
    return total / (time.perf_counter() - began) / 1e9
