"""Checkpoint push: starts the process that uploads checkpoints while the ranks run. Standard library only."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

from vastrun.contract import layout, stop_budget
from vastrun.contract.job import Job
from vastrun.onstart.run_module import module_command
from vastrun.onstart.supervision.processes import kill_descendants, start_logged
from vastrun.onstart.supervision.stop import StopRequest

PUSH_LOG = f"{layout.RAW_LOGS}/push.log"
LAST_PUSH_S = 60.0
"""Maximum seconds to push the last checkpoint after the ranks ended: the machine costs money meanwhile."""


def push_last(box: Path, job: Job, stop: StopRequest) -> None:
    """Push the last checkpoints, within the remaining time of a stop."""
    push = start_push(box, job, "once")
    if push is not None:
        with suppress(subprocess.TimeoutExpired):
            push.wait(last_push_s(stop.waited_s))
        kill_descendants(within_s=2.0)


def last_push_s(waited_s: float) -> float:
    """Return the timeout of the last push, `waited_s` seconds after a stop request; 0: no request."""
    return max(0.0, min(LAST_PUSH_S, stop_budget.PUSH_S - waited_s))


def start_push(box: Path, job: Job, *arguments: str) -> subprocess.Popen[bytes] | None:
    """Start the process that pushes each saved checkpoint, or the newest `once`; None: the job has no URL."""
    if job.push is None:
        return None
    (box / layout.RAW_LOGS).mkdir(parents=True, exist_ok=True)
    command = (*module_command("vastrun.onstart.transfer.push"), str(os.getpid()), *arguments)
    env = {**os.environ, "VASTRUN_BOX": str(box), "PYTHONUNBUFFERED": "1"}
    return start_logged(command, box / PUSH_LOG, env, cwd=box)
