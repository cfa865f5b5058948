"""Prepare: run a step of the job's own program in the place of this process. Standard library only.

python -m vastrun.onstart.boot.prepare NAME     in a box, with the variables of a step
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from vastrun.contract.job import Job
from vastrun.onstart.run_module import module_command


def main(name: str) -> NoReturn:
    """Run the step of this name."""
    steps = {step.name: step for step in Job.read(Path(os.environ["VASTRUN_BOX"])).program.prepare}
    command = (*module_command(steps[name].module), *steps[name].arguments)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1])
