"""Frameworks: the programs of `examples/` on an emulated Vast whose machines are destroyed while they train.

Each program trains once undisturbed, then with a machine destroyed at a random step. It must continue on the
next machine from its newest downloaded checkpoint and end with the same weights. A run that was stopped is
continued by `--from` and by `--from-url`.
"""

import importlib.util
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress

from benchmarks.chaos.frameworks.judgement import Judged, Weights
from benchmarks.chaos.frameworks.launches import (
    Continued,
    TooLateError,
    continue_run,
    train,
    train_undisturbed,
)
from benchmarks.chaos.frameworks.plans import PROGRAMS, Program, plan

_TRIES = 3
"""How often a trial is made in which a machine is to be destroyed before its program is done."""
_COLUMNS: Mapping[str, str] = {
    "runs": "runs",
    "machines destroyed": "destroyed",
    "before a checkpoint was downloaded": "early",
    "continued from the newest": "continued",
    "same weights": "same",
    "largest difference": "difference",
    "incomplete checkpoints used": "incomplete",
    "machines left": "left",
    "wrong verdicts": "wrong",
}


def run(*, runs: int = 10, seed: int = 0, parallel: int = 4, only: Sequence[str] = ()) -> bool:
    """Print a line for each run, then a table. Return True when every run kept every promise.

    `only`: names of programs; all whose framework is installed when empty.
    """
    began = time.monotonic()
    programs = [program for name, program in PROGRAMS.items() if not only or name in only]
    missing = [program for program in programs if importlib.util.find_spec(program.module) is None]
    for program in missing:
        print(f"{program.name}: {program.module} is not installed", flush=True)
    programs = [program for program in programs if program not in missing]
    found: dict[str, list[Judged]] = defaultdict(list)
    with ThreadPoolExecutor(parallel) as pool:
        expected = dict(zip(programs, pool.map(train_undisturbed, programs), strict=True))
        continued = [pool.submit(continue_run, program, expected[program]) for program in programs]
        trials = [
            pool.submit(_trial, program, seed, number, expected[program])
            for number in range(runs)
            for program in programs
        ]
        try:
            for trial in as_completed(trials):
                judged = trial.result()
                found[judged.plan.program.name].append(judged)
                print(judged, flush=True)
        finally:
            pool.shutdown(cancel_futures=True)
    results: list[Continued] = [one for pair in continued for one in pair.result()]
    print(*results, _table(found), sep="\n")
    print(f"{sum(map(len, found.values()))} runs in {time.monotonic() - began:.0f} s")
    trials_are_good = all(judged.is_good for each in found.values() for judged in each)
    return not missing and trials_are_good and all(one.is_good for one in results)


def _trial(program: Program, seed: int, number: int, expected: Weights) -> Judged:
    for _ in range(_TRIES - 1):
        with suppress(TooLateError):
            return train(plan(program, seed, number), expected)
    return train(plan(program, seed, number), expected)


def _table(found: Mapping[str, Sequence[Judged]]) -> str:
    rows = ["| program | " + " | ".join(_COLUMNS) + " |", "|---" * (len(_COLUMNS) + 1) + "|"]
    for name, each in found.items():
        sums = _sums(each)
        rows.append(f"| {name} | " + " | ".join(str(sums[column]) for column in _COLUMNS.values()) + " |")
    return "\n".join(rows)


def _sums(each: Sequence[Judged]) -> Mapping[str, object]:
    return {
        "runs": len(each),
        "destroyed": sum(len(judged.plan.steps) for judged in each),
        "early": sum(judged.started_afresh for judged in each),
        "continued": sum(judged.continued for judged in each),
        "same": sum(judged.difference == 0 for judged in each),
        "difference": f"{max(judged.difference for judged in each):.2g}",
        "incomplete": sum(judged.incomplete for judged in each),
        "left": sum(judged.left_rented for judged in each),
        "wrong": sum(bool(judged.wrong) for judged in each),
    }
