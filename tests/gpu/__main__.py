"""Do the checks on the GPUs of this machine: `python -m tests.gpu`, or `make gpu`.

Exit status: 0, all that was done holds, or there is no GPU; 1, a check failed; 2, it cannot be done here.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from tests.gpu import results
from tests.gpu.check import Check, Place, Result, State
from vastrun.onstart.boot.preflight.machine import torch_fault
from vastrun.onstart.supervision.launch import healthy_gpus

_BEGAN_S = time.monotonic()
_NEEDED = ("torch", "numpy", "h5py")
_NO_GPU = "no NVIDIA GPU here: nothing was checked, and nothing is claimed"


def main(arguments: list[str]) -> int:
    """Do what the arguments name, print each result, and write all of them to a folder."""
    options = _parser().parse_args(arguments)
    gpus = 0 if options.cpu else len(healthy_gpus() or ())
    if not gpus and not options.cpu:
        print(_NO_GPU)
        return 0
    if fault := _fault(gpus):
        print(f"error: {fault}", file=sys.stderr)
        return 2
    from tests.gpu.checks import CHECKS

    unknown = [name for name in options.names if name not in CHECKS]
    if unknown:
        print(
            f"error: no check is called {', '.join(unknown)}\ntry: one of {', '.join(CHECKS)}",
            file=sys.stderr,
        )
        return 2
    chosen = {name: CHECKS[name] for name in options.names or CHECKS}
    return _run(chosen, Place(gpus=gpus), options)


def _run(checks: Mapping[str, Check], place: Place, options: argparse.Namespace) -> int:
    from benchmarks.machine import described
    from tests.gpu import running

    folder = options.out
    # As trainings on GPUs have it (onstart/supervision/environment.py).
    os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    machine = described()
    earlier = results.without(results.read(folder), checks)
    print(machine, flush=True)
    running.start()
    print(f"torch and the trainer are loaded after {time.monotonic() - _BEGAN_S:.1f} s", flush=True)
    found = {name: _not_reached(name, check) for name, check in checks.items()}
    within_s = 60 * options.minutes - (time.monotonic() - _BEGAN_S)
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    for result in running.run_all(checks, place, within_s=within_s, logs=folder / "logs"):
        found[result.name] = result
        report = results.Report(machine=machine, gpus=place.gpus, results=list(found.values()))
        results.write(folder, [*earlier, report])
        print(results.line_of(result), flush=True)
    if place.gpus and options.page:
        page = options.page.read_text(encoding="utf-8")
        options.page.write_text(results.placed(page, results.table([*earlier, report])), encoding="utf-8")
    print("\n".join([*results.summary(report, checks), f"all results: {folder}"]))
    return 1 if report.failed else 0


def _not_reached(name: str, check: Check) -> Result:
    return Result(name=name, text=check.text, state=State.LEFT, why="the call ended before it")


def _fault(gpus: int) -> str:
    """Say why nothing can be done with this Python; empty when it can."""
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        return f"{sys.executable} has no {', '.join(missing)}; try: make gpu PYTHON=… with one that has"
    fault = torch_fault(gpus=gpus)
    return f"{sys.executable}: {fault}; try: make gpu PYTHON=… with another" if fault else ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a check; all where none is named")
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="time for all of it (10); most valuable first"
    )
    parser.add_argument("--out", type=Path, default=Path("build/gpu"), help="where results are written")
    parser.add_argument("--page", type=Path, help="a page with marks, such as docs/benchmarks.md, to fill")
    parser.add_argument("--cpu", action="store_true", help="try the checks themselves on the CPU")
    return parser


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)
