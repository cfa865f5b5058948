"""Set-up: run the job's set-up commands in the code folder; the first that fails is the last.

python -m vastrun.onstart.boot.setup     in a box, with the variables of a step. Standard library only.

Another torch is gigabytes. But each torchvision requires one version of torch, so `pip install torchvision`
replaces a torch that is not the newest. Therefore pip and uv get a constraint: they choose the versions of
other packages that go with the torch that is there. A command that finds none runs once more without it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.texts import hide_in_command
from vastrun.onstart.boot.preflight.machine import EXIT_UNFIT_IMAGE, version_fault_here

_CONSTRAINT, _PIP_LOG = "torch-constraint.txt", "pip.log"
_TORCH = re.compile(r"(?<![\w./-])torch(?![\w./-])")
_ANOTHER = re.compile(r"(?<!\S)(?:-U|--upgrade|--pre|--force-reinstall|-i|--(?:extra-)?index-url)(?![\w-])")
"""Options with which a command that names torch asks for another one."""
_UV = re.compile(r"(?<![\w./-])uv(?!\S)")


def main() -> int:
    """Run the commands. Return the exit status of the onstart step."""
    box = Path(os.environ["VASTRUN_BOX"])
    job = Job.read(box)
    torch = _torch()
    keeping = _keeping(torch, box)
    for command in job.setup:
        print(hide_in_command(f"$ {command}"), flush=True)
        code = _run(command, box, f"torch=={torch}", keeping)
        if code != 0:
            print(hide_in_command(f"set-up failed with exit code {code}: {command}"))
            return 1
    if torch and (now := _torch()) != torch:
        print(f"set-up replaced torch {torch} by {now or 'none'}")
    if fault := version_fault_here(job.program):
        print(fault, file=sys.stderr)
        return EXIT_UNFIT_IMAGE
    return 0


def _torch() -> str:
    """Return the version of torch in this Python; empty when it has none."""
    try:
        return version("torch") or ""  # None where its record is damaged
    except PackageNotFoundError:
        return ""


def _keeping(torch: str, box: Path) -> dict[str, str]:
    """Return the variables by which pip and uv keep this torch; none if the job sets one of them.

    2.13.0+cu126 is of an index of PyTorch's: the packages on PyPI are for another CUDA.
    """
    file = box / _CONSTRAINT
    names = ("PIP_CONSTRAINT", "UV_CONSTRAINT")
    # pip and uv part a list of files at blanks.
    if not torch or "+" in torch or any(name in os.environ for name in names) or len(str(file).split()) > 1:
        return {}
    file.write_text(f"torch=={torch}\n", encoding="utf-8")
    return {**dict.fromkeys(names, str(file)), "PIP_LOG": str(box / _PIP_LOG)}


def _run(command: str, box: Path, kept: str, keeping: Mapping[str, str]) -> int:
    """Return the exit status of a command with these variables, or without them if it failed by them.

    `kept`: the requirement that they state.
    """
    if not keeping or (_TORCH.search(command) and _ANOTHER.search(command)):
        return _shell(command, box, {})
    code = _shell(command, box, keeping)
    if code != 0 and (_UV.search(command) or _is_blamed(box, kept)):
        print(f"it failed while {kept} was kept: trying again with any torch", flush=True)
        code = _shell(command, box, {})
    (box / _PIP_LOG).unlink(missing_ok=True)
    return code


def _shell(command: str, box: Path, variables: Mapping[str, str]) -> int:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=box / layout.CODE,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def _is_blamed(box: Path, kept: str) -> bool:
    """Tell whether pip's log says that nothing goes with the constraint."""
    reasons = [f"{text} {kept}" for text in ("(constraint)", "No matching distribution found for")]
    try:
        with (box / _PIP_LOG).open(encoding="utf-8", errors="replace") as log:
            return any(reason in line for line in log for reason in reasons)
    except OSError:  # no pip was run
        return False


if __name__ == "__main__":
    sys.exit(main())
