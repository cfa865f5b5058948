"""The environment of the ranks: every variable we set, once, with its reason. Standard library only.

Written for torch 2.13. Three layers, the later one wins: what the box's processes inherit, our defaults, the
job's `env:`, and last the names that are ours, without which the supervisor could not keep its promises.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from trainer import layout
from trainer.job import Job

_PACKAGES = Path(__file__).resolve().parents[2]


def rank_environment(job: Job, box: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of the launch agent and of the ranks below it."""
    asked = {**inherited, **defaults(job), **job.env}
    return {**asked, **ours(box), **_paths(job, box, asked)}


def defaults(job: Job) -> dict[str, str]:
    """What a job may change in its `env:`."""
    return {
        # Every rank would otherwise take all cores, and they would fight for them.
        "OMP_NUM_THREADS": str(job.threads or max(1, len(os.sched_getaffinity(0)) // job.ranks)),
        "NCCL_DEBUG": job.nccl_debug,
        # How many collectives the flight recorder remembers per rank.
        "TORCH_FR_BUFFER_SIZE": "2000",
    }


def ours(box: Path) -> dict[str, str]:
    """What a job may not change."""
    return {
        "VASTRUN_BOX": str(box),
        "VASTRUN_RUN": str(box / layout.RUN),
        "VASTRUN_DATA": str(box / layout.DATA),
        "VASTRUN_OUTPUTS": str(box / layout.OUTPUTS),
        # Log lines arrive when they are printed, also those before a crash.
        "PYTHONUNBUFFERED": "1",
        # A crash, and the SIGABRT sent to a program that hangs, leave a Python stack in the rank's log.
        "PYTHONFAULTHANDLER": "1",
        # 3: a failed collective ends the process, and the flight recorder works. The agent's default is 1.
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3",
        # When a collective times out, say which one on which rank; torchfrtrace reads the files.
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_DUMP_TEMP_FILE": str(box / layout.FLIGHT_RECORDER / "rank-"),
        # Ranks meet in a store of their own: the agent, and any store in it, is frozen while they stop.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }


def _paths(job: Job, box: Path, asked: Mapping[str, str]) -> dict[str, str]:
    """`python` is the Python that trains; it finds the trainer, and the trainer finds the user's code."""
    code = [str(box / layout.CODE)] if job.train else []
    modules = [str(_PACKAGES), *code, asked.get("PYTHONPATH", "")]
    programs = [str(Path(sys.executable).parent), asked.get("PATH", os.defpath)]
    return {
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(filter(None, modules))),
        "PATH": os.pathsep.join(programs),
    }
