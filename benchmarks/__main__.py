"""Measure the figures of `docs/benchmarks.md` that have a limit, or those named, and hold them to it.

The first line says on what machine; each figure how often it was measured (n). Medians, with the lowest and
the highest in brackets; what is compared is measured in turns. Status 1 when a limit was missed or a promise
broken: after everything was measured, with a line on stderr for each missed limit.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable
from functools import partial

from benchmarks import (
    batch,
    chaos,
    estimate,
    machine,
    release,
    short_job,
    snapshots,
    startup,
    throughput,
)
from benchmarks.chaos import batches

Run = Callable[[], bool | None]
"""Measures and prints; False when a limit was missed."""

RUNS: dict[str, Run] = {
    "startup": startup.run,
    **{name: partial(throughput.run, name) for name in throughput.SETUPS},
    "short-job": short_job.run,
    "snapshots": snapshots.run,
    "release": release.run,
    "batch": batch.run,
    "estimate": estimate.run,
}


def main() -> None:
    options = _parser().parse_args()
    given = {"points": options.points, "parallel": options.at_once, "speed": options.speed}
    of_batch = {name: value for name, value in given.items() if value is not None}
    runs = RUNS | {"batch": partial(batch.run, **of_batch), "chaos": partial(_chaos, options)}
    unknown = [name for name in options.names if name not in runs]
    if unknown:
        sys.exit(f"error: no benchmark is called {', '.join(unknown)}\ntry: one of {', '.join(runs)}")
    # By an exception, so that what a benchmark has started, and perhaps stopped, ends with it.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    # Each process would compile again what `pip` compiles once.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    print(machine.described(), flush=True)
    results = [runs[name]() for name in options.names or runs]
    sys.exit(1 if False in results else 0)


def _chaos(options: argparse.Namespace) -> bool:
    if options.frameworks:
        from benchmarks.chaos import frameworks

        return frameworks.run(
            runs=options.runs, seed=options.seed, parallel=options.parallel, only=options.programs
        )
    if options.slurm:
        from benchmarks.chaos import slurm

        return slurm.run(runs=options.runs, seed=options.seed, parallel=options.parallel, nodes=options.nodes)
    if options.nodes > 1:
        from benchmarks.chaos import nodes

        parallel = min(4, options.parallel)
        return nodes.run(runs=options.runs, seed=options.seed, parallel=parallel, nodes=options.nodes)
    if options.batches:
        return batches.run(batches=options.batches, seed=options.seed, parallel=min(3, options.parallel))
    return chaos.run(
        runs=options.runs,
        seed=options.seed,
        parallel=options.parallel,
        image=options.docker,
        hostile=options.hostile,
        minutes=options.minutes,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    every = ", ".join([*RUNS, "chaos"])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {every}; all where none is named")
    parser.add_argument("--runs", type=int, default=20, help="chaos: how many")
    parser.add_argument("--points", type=int, help="batch: how many")
    parser.add_argument("--at-once", type=int, help="batch: so many at once")
    parser.add_argument("--speed", type=float, help="batch: how fast time passes")
    parser.add_argument("--batches", type=int, default=0, help="chaos: so many batches instead of runs")
    parser.add_argument("--seed", type=int, default=0, help="chaos: other troubles")
    parser.add_argument("--parallel", type=int, default=4, help="chaos: so many at once")
    parser.add_argument("--docker", metavar="IMAGE", help="chaos: the boxes are containers of that image")
    parser.add_argument("--minutes", type=float, default=0.0, help="chaos: how long each program works")
    parser.add_argument(
        "--frameworks", action="store_true", help="chaos: the programs of examples/, machines destroyed"
    )
    parser.add_argument(
        "--programs", nargs="*", default=(), metavar="PROGRAM", help="chaos --frameworks: only these"
    )
    parser.add_argument("--slurm", action="store_true", help="chaos: on a real Slurm of this computer")
    parser.add_argument("--nodes", type=int, default=1, help="chaos: each run on so many boxes, or of Slurm")
    parser.add_argument("--hostile", action="store_true", help="chaos: every box lies")
    return parser


if __name__ == "__main__":
    main()
