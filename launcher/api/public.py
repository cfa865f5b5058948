"""What `import vastrun` offers where the launcher is installed. `vastrun/__init__.py` has the same names."""

from __future__ import annotations

import os

from launcher.api.batches import BatchHandle, BatchStatus, PointRow
from launcher.api.client import Client
from launcher.api.drivers import ProcessDriver
from launcher.api.runs import RunHandle, RunResult, RunStatus
from launcher.commands.planning import LaunchPlan
from launcher.core import Cause, Phase, Verdict
from launcher.core.job import JobSpec
from launcher.environment import wire
from launcher.ui.render.loglines import LogLine

__all__ = [
    "BatchHandle",
    "BatchStatus",
    "Cause",
    "JobSpec",
    "LaunchPlan",
    "LogLine",
    "Phase",
    "PointRow",
    "RunHandle",
    "RunResult",
    "RunStatus",
    "Verdict",
    "batch",
    "batches",
    "find_batch",
    "launch",
    "plan",
    "run",
    "runs",
    "sweep",
]

_client = Client(lambda: wire(os.environ), ProcessDriver)

plan = _client.plan
launch = _client.launch
batch = _client.batch
sweep = _client.sweep
runs = _client.runs
run = _client.run
batches = _client.batches
find_batch = _client.find_batch
