"""Job file: print variables for the onstart steps from job.json, each with a NUL byte. Standard library only.

python -m vastrun.onstart.boot.jobfile     the job's `env` and the steps' variables, NAME=VALUE
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from vastrun.contract import layout


def variables(job: dict[str, Any]) -> list[str]:
    """Return NAME=VALUE of the job's environment variables, overridden by those of the steps."""
    program = job["program"]
    prepare = [step["name"] for step in program.get("prepare") or () if step["name"][:2].isdecimal()]
    of_steps = {
        "VASTRUN_KIND": program["kind"],
        "VASTRUN_PREPARE": " ".join(prepare),
        "VASTRUN_PRELOAD": len(program.get("preload") or ()),
        "VASTRUN_RANKS": job["ranks"],
        "VASTRUN_GPUS": job["gpus"],
        "VASTRUN_SETUP": len(job.get("setup") or ()),
        "VASTRUN_DOWNLOADS": len(job.get("data") or ()),
        "VASTRUN_FETCH": len(job.get("pushed") or ()) + (job.get("start_from") is not None),
    }
    return [f"{name}={value}" for name, value in {**(job.get("env") or {}), **of_steps}.items()]


def main() -> None:
    """Print the variables from job.json in the folder of VASTRUN_BOX."""
    job = json.loads(Path(os.environ["VASTRUN_BOX"], layout.JOB).read_text(encoding="utf-8"))
    # NUL, since a variable may hold line breaks; the shell reads them with `read -d ''`.
    sys.stdout.buffer.write(b"".join(item.encode() + b"\0" for item in variables(job)))


if __name__ == "__main__":
    main()
