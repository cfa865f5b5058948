"""The public names of `import vastrun` if the launcher is installed, as listed in `vastrun/__init__.py`."""

from __future__ import annotations

import os

from vastrun.launcher.api.batches import BatchHandle
from vastrun.launcher.api.client import Client
from vastrun.launcher.api.drivers import ProcessDriver
from vastrun.launcher.api.results import BatchResults, BatchStatus, PointRow, RunResult, RunStatus
from vastrun.launcher.api.runs import RunHandle
from vastrun.launcher.app import App
from vastrun.launcher.commands.plan import LaunchPlan
from vastrun.launcher.core import Cause, MachineState, Phase, Verdict
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.ui.render.loglines import LogLine

__all__ = [
    "BatchHandle",
    "BatchResults",
    "BatchStatus",
    "Cause",
    "JobSpec",
    "LaunchPlan",
    "LogLine",
    "MachineState",
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

_client = Client(lambda: App(os.environ), ProcessDriver)

plan = _client.plan
launch = _client.launch
batch = _client.batch
sweep = _client.sweep
runs = _client.runs
run = _client.run
batches = _client.batches
find_batch = _client.find_batch
