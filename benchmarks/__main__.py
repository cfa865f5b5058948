"""`python -m benchmarks [NAME ...]`: all of them, or those named; status 1 when chaos found a fault."""

from __future__ import annotations

import argparse
import sys
from functools import partial

from benchmarks import (
    chaos,
    checkpoints,
    container,
    crowd,
    loader,
    log_lag,
    long_log,
    operators,
    overhead,
    recovery,
    release,
    resumed,
    stages,
    startup,
    telemetry,
    throughput,
)


def main() -> None:
    options = _parser().parse_args()
    runs = {
        "startup": startup.run,
        **{name: partial(throughput.run, name) for name in throughput.CLAIMS},
        "frameworks": throughput.run_frameworks,
        "overhead": overhead.run,
        "telemetry": telemetry.run,
        "checkpoints": checkpoints.run,
        "resumed": resumed.run,
        "stages": stages.run,
        "loader": loader.run,
        "operators": operators.run,
        "recovery": recovery.run,
        "log-lag": log_lag.run,
        "long-log": long_log.run,
        "release": release.run,
        "container": container.run,
        "crowd": crowd.run,
        "chaos": partial(
            chaos.run,
            runs=options.runs,
            seed=options.seed,
            parallel=options.parallel,
            image=options.docker,
            hostile=options.hostile,
            minutes=options.minutes,
        ),
    }
    unknown = [name for name in options.names if name not in runs]
    if unknown:
        sys.exit(f"error: no benchmark is called {', '.join(unknown)}\ntry: one of {', '.join(runs)}")
    results = [runs[name]() for name in options.names or runs]
    sys.exit(1 if False in results else 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--runs", type=int, default=20, help="chaos: how many")
    parser.add_argument("--seed", type=int, default=0, help="chaos: other troubles")
    parser.add_argument("--parallel", type=int, default=4, help="chaos: so many at once")
    parser.add_argument("--docker", metavar="IMAGE", help="chaos: the boxes are containers of that image")
    parser.add_argument("--minutes", type=float, default=0.0, help="chaos: how long each program works")
    parser.add_argument("--hostile", action="store_true", help="chaos: every box lies")
    return parser


if __name__ == "__main__":
    main()
