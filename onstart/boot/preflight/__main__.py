"""`python -m vastrun.onstart.boot.preflight CHECK`, in the box of VASTRUN_BOX, with the variables of a step.

machine     check that the machine suffices for the job: GPUs, CUDA, shared memory, disk
comm        time an all-reduce over the ranks; record the working settings in run/preflight.json
link        time an all-reduce over the nodes of the run, by one rank of each; minimum VASTRUN_LINK_MBPS
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vastrun.contract.job import Job
from vastrun.contract.program import ProgramSpec
from vastrun.onstart.boot.preflight import machine
from vastrun.onstart.run_module import importing

_ONE_RANK = "one rank: no communication to check"
_USAGE = "usage: python -m vastrun.onstart.boot.preflight machine|comm|link   (VASTRUN_BOX: a folder)"


def main(arguments: list[str]) -> int:
    """Run the check that the arguments name.

    Returns its exit status, which docs/box.md lists; 2 for wrong arguments.
    """
    box = os.environ.get("VASTRUN_BOX")
    checks = {"machine": _check_machine, "comm": _check_communication, "link": _check_link}
    if len(arguments) != 1 or arguments[0] not in checks or not box:
        print(_USAGE, file=sys.stderr)
        return 2
    return checks[arguments[0]](Path(box))


def _check_machine(box: Path) -> int:
    gpus = int(os.environ["VASTRUN_GPUS"])
    torch = Job.read(box).program.torch is not None and os.environ["VASTRUN_SETUP"] == "0"
    found = machine.inspect_machine(box, gpus=gpus)
    print(*machine.description(found), sep="\n")
    if not gpus:
        print("no GPU: the job trains on the CPU")
    for line in machine.warnings(found, gpus=gpus):
        print(f"warning: {line}")
    faults = machine.faults_of(found, gpus=gpus, torch=torch)
    for line in faults:
        print(line, file=sys.stderr)
    return 1 if faults else 0


def _check_communication(box: Path) -> int:
    program = Job.read(box).program
    ranks, gpus = int(os.environ["VASTRUN_RANKS"]), int(os.environ["VASTRUN_GPUS"])
    if ranks == 1 and not _needs_torch(program):
        print(_ONE_RANK)
        return 0
    fault = machine.torch_fault(gpus=gpus) or machine.version_fault_here(program)
    if (code := _untested(program, fault, "the communication of the ranks")) is not None:
        return code
    if ranks == 1 and not gpus:
        print(_ONE_RANK)
        return 0
    backend = "nccl" if gpus else "gloo"
    return _with_torch(program, lambda comm: comm.check_communication(box, ranks, backend))


def _check_link(box: Path) -> int:
    program = Job.read(box).program
    gpus = int(os.environ["VASTRUN_GPUS"])
    fault = machine.torch_fault(gpus=gpus)
    if (code := _untested(program, fault, "the connection of the nodes")) is not None:
        return code
    min_mbps, backend = float(os.environ["VASTRUN_LINK_MBPS"]), "nccl" if gpus else "gloo"
    return _with_torch(program, lambda comm: comm.check_link(box, min_mbps, backend))


def _with_torch(program: ProgramSpec, check: Callable[[Any], int]) -> int:
    """Run a check of `comm`, which imports torch: a user's program may not need it."""
    try:
        with importing():  # it takes seconds
            from vastrun.onstart.boot.preflight import comm
    except (ImportError, OSError) as error:
        fault = f"torch cannot be imported: {error}"
        if not _needs_torch(program):
            print(f"{fault}; communication is not tested before your program runs")
            return 0
        print(fault, file=sys.stderr)
        return machine.EXIT_UNFIT_IMAGE
    return check(comm)


def _needs_torch(program: ProgramSpec) -> bool:
    """Tell whether the program, or that of a slot of a held machine, needs torch."""
    return program.torch is not None or program.kind == "hold"


def _untested(program: ProgramSpec, fault: str, what: str) -> int | None:
    """Say why it is not tested, and return the exit status; None: it can be tested."""
    if reason := "" if _needs_torch(program) else machine.skip_reason():
        print(f"{reason}: {what} is not tested before your program runs")
        return 0
    if fault and os.environ["VASTRUN_SETUP"] != "0":
        print(f"{fault}, unless set-up installs it; {what} is not tested")
        return 0
    if fault:
        print(fault, file=sys.stderr)
        return machine.EXIT_UNFIT_IMAGE
    return None


if __name__ == "__main__":
    exit_code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)  # at once: the teardown of torch takes half a second
