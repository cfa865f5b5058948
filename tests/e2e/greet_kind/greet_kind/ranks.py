"""The program of a rank."""

import os
from pathlib import Path

from vastrun import beat
from vastrun.contract.job import Job

options = Job.read(Path(os.environ["VASTRUN_BOX"])).program.config or {}
for step in range(options["steps"]):
    print(f"hello {options['whom']}", flush=True)
    beat(step + 1)
