"""Rank environment: every variable that vastrun sets for the ranks, with its reason. Standard library only.

For any torch: a version ignores unknown variables. Later layers override earlier ones: the inherited
environment, the defaults, the preflight's findings, the job's `env:`, and the fixed variables that the
supervisor depends on. W&B's differ by rank: `wandb_variables` adds them.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.program import RESUME
from vastrun.onstart.nodes import LOOPBACK, interface_of
from vastrun.onstart.supervision.restarts import Start

_DEBUG = "TORCH_DISTRIBUTED_DEBUG"
_PACKAGES = Path(__file__).absolute().parents[3]
"""Folder of the package, not resolved: in a checkout, `vastrun/onstart` is a link to a sibling folder."""
_STARTUP = Path(__file__).absolute().parents[1] / "python_startup"
"""Folder of the module that records uncaught exceptions."""
_ID, _RESUME = "WANDB_RUN_ID", "WANDB_RESUME"


def rank_environment(job: Job, start: Start, box: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the launch agent and of the ranks below it."""
    requested = {
        **inherited,
        **default_variables(job, start, inherited),
        **_preflight_variables(box),
        **job.env,
    }
    if lowers_debug(job, inherited):
        requested[_DEBUG] = "INFO"
    env = {"VASTRUN_RESTART": str(start.number), RESUME: start.resume}
    if start.micro_batch is not None:
        env["VASTRUN_MICRO_BATCH"] = str(start.micro_batch)
    if start.gpus:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(start.gpus)
    return {**requested, **fixed_variables(box), **env, **_paths(job, box, requested)}


def lowers_debug(job: Job, inherited: Mapping[str, str]) -> bool:
    """Tell whether the debug level DETAIL becomes INFO: DDP on gloo crashes with DETAIL."""
    is_asked = {**inherited, **job.env}.get(_DEBUG) == "DETAIL"
    return is_asked and (job.program.uses_gloo or not job.gpus)


def default_variables(job: Job, start: Start, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a job may override in its `env:`."""
    return {
        # Otherwise every rank would use all cores, and they would compete for them.
        "OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // start.world_size)),
        "NCCL_DEBUG": "WARN",
        # Collectives that the flight recorder remembers per rank.
        "TORCH_FR_BUFFER_SIZE": "2000",
        # Seconds until NCCL's watchdog aborts a rank without progress. The supervisor's limit comes first: it
        # knows the activity of the rank, and that compiling and saving take longer than a step.
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": str(math.ceil(max(job.stall_s, job.start_s)) + 60),
        # Torch's launcher checks for a GPU in the agent. Without this it initialises the CUDA driver there,
        # which the agent does not need, and which its forks could not use.
        **({"PYTORCH_NVML_BASED_CUDA_CHECK": "1"} if job.gpus else {}),
        **_local_interface(job, inherited),
        # Like `accelerate launch --cpu`: otherwise each rank of accelerate trains alone.
        **({} if job.gpus else {"ACCELERATE_USE_CPU": "true"}),
        **job.program.env,
    }


def _local_interface(job: Job, inherited: Mapping[str, str]) -> dict[str, str]:
    """Let gloo use the loopback interface where all ranks that use it are on this machine.

    Otherwise gloo looks up this machine's name in every process; where it does not resolve, this takes 5 to
    20 seconds.
    """
    if not job.program.uses_gloo or job.nodes > 1 or "GLOO_SOCKET_IFNAME" in inherited:
        return {}
    interface = interface_of(LOOPBACK)
    return {"GLOO_SOCKET_IFNAME": interface} if interface else {}


def _preflight_variables(box: Path) -> dict[str, str]:
    """Return the settings for communication between this machine's GPUs that the preflight found."""
    try:
        found = json.loads((box / layout.PREFLIGHT).read_text(encoding="utf-8"))["env"]
        return {str(name): str(value) for name, value in found.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}  # not needed, or the preflight ended earlier


def fixed_variables(box: Path) -> dict[str, str]:
    """Return the variables that a job may not change."""
    return {
        "VASTRUN_BOX": str(box),
        "VASTRUN_RUN": str(box / layout.RUN),
        "VASTRUN_DATA": str(box / layout.DATA),
        "VASTRUN_OUTPUTS": str(box / layout.OUTPUTS),
        # Log lines arrive when they are printed, including those before a crash.
        "PYTHONUNBUFFERED": "1",
        # A crash, and the SIGABRT sent to a program that hangs, leave a Python stack in the rank's log.
        "PYTHONFAULTHANDLER": "1",
        # 3: a failed collective ends the process, and the flight recorder works. The agent's default is 1.
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3",
        # When a collective times out, record which one on which rank; torchfrtrace reads the files.
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_DUMP_TEMP_FILE": str(box / layout.FLIGHT_RECORDER / "rank-"),
        # Each rank's watchdog reads its own pipe there: a byte makes it write the file above immediately.
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(box / layout.RECORDER_PIPES / "rank-"),
    }


def _paths(job: Job, box: Path, requested: Mapping[str, str]) -> dict[str, str]:
    """Make `python` this interpreter, which finds our package, and let a module find the user's code."""
    code = [box / layout.CODE] if job.program.module else []
    own = filter(None, requested.get("PYTHONPATH", "").split(os.pathsep))
    modules = dict.fromkeys(map(str, (_STARTUP, _PACKAGES, *code, *own)))
    programs = [str(Path(sys.executable).parent), requested.get("PATH", os.defpath)]
    return {"PYTHONPATH": os.pathsep.join(modules), "PATH": os.pathsep.join(programs)}


def wandb_variables(job: Job, rank: int, world_size: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Return W&B's defaults for one rank of a program; those of the user are in `environment` and stay.

    Each rank has a run of its own id: two that create the same run are what W&B answers with HTTP 409.
    With `WANDB_RESUME=never` each start has a new run, as has one without an id.
    """
    if job.program.keeps_records:  # it sets them itself
        return {}
    first = wandb_id(job)
    defaults = {"WANDB_NAME": f"{job.name} {first}".strip() + (f" rank {rank}" if rank else "")}
    if job.batch is not None:
        defaults |= {"WANDB_RUN_GROUP": job.batch.name, "WANDB_TAGS": job.batch.tag}
    elif world_size > 1:
        defaults["WANDB_RUN_GROUP"] = first
    code = job.code or {}
    if code.get("commit") and code.get("remote"):
        defaults |= {"WANDB_GIT_COMMIT": str(code["commit"]), "WANDB_GIT_REMOTE_URL": str(code["remote"])}
    if environment.get(_RESUME) != "never":
        defaults |= {_ID: wandb_id(job, rank), _RESUME: "allow"}
    return {name: value for name, value in defaults.items() if name not in environment}


def wandb_id(job: Job, rank: int = 0) -> str:
    """Return the id of a rank's W&B run: of the first run of those that this one continues, by the ledger.

    The last part of a URL to start from is not one: it may be any word.
    """
    continues = job.continues[:-1] if job.start_from else job.continues
    first_run = continues[-1] if continues else job.run_id
    return first_run + (f"-rank{rank}" if rank else "")
