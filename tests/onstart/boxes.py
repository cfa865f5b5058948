"""Boxes with a job, in which a module of the machine's part runs as a step does."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.onstart.supervision.launches import job_of
from tests.waiting import LONGEST_S
from vastrun.contract import layout


def write_job(box: Path, **job: Any) -> None:
    """The job of a box, which is made where there is none."""
    box.mkdir(parents=True, exist_ok=True)
    (box / layout.JOB).write_text(json.dumps(job_of(**job)))


def run_module(
    box: Path,
    module: str,
    *arguments: str,
    python: tuple[str | Path, ...] = (sys.executable,),
    cwd: Path | None = None,
    **environ: str,
) -> subprocess.CompletedProcess[str]:
    """`python`: with its options."""
    return subprocess.run(
        [*python, "-m", f"vastrun.onstart.{module}", *arguments],
        cwd=cwd,
        env={**os.environ, "VASTRUN_BOX": str(box), **environ},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
    )
