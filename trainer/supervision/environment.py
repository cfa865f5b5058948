"""The environment of the ranks: every variable we set, once, with its reason. Standard library only.

For any torch: a version ignores what it does not know. In layers, the later one wins: W&B's of a batch, what
the box's processes inherit, our defaults, what the preflight found, the job's `env:`, and last the names that
are ours, without which the supervisor could not keep its promises.
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
from vastrun.contract.resume_command import RESUME
from vastrun.trainer.distributed.nodes import LOOPBACK, interface_of
from vastrun.trainer.supervision.restarts import Start

_AFTER_US_S = 60
_DEBUG = "TORCH_DISTRIBUTED_DEBUG"
_PACKAGES = Path(__file__).absolute().parents[3]
"""Not resolved: in a checkout, `vastrun/trainer` is a link to a folder beside it."""


def rank_environment(job: Job, start: Start, box: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the launch agent and of the ranks below it."""
    asked = {**_wandb(job), **inherited, **defaults(job, start, inherited), **_found_to_work(box), **job.env}
    if lowers_debug(job, inherited):
        asked[_DEBUG] = "INFO"
    return {**asked, **ours(box), **_start(start), **_paths(job, box, asked)}


def lowers_debug(job: Job, inherited: Mapping[str, str]) -> bool:
    """Tell whether the debug level DETAIL becomes INFO: it makes DDP on gloo end in a segmentation fault."""
    is_asked = {**inherited, **job.env}.get(_DEBUG) == "DETAIL"
    return is_asked and (job.train is not None or not job.gpus)


def defaults(job: Job, start: Start, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return what a job may change in its `env:`."""
    return {
        # Every rank would otherwise take all cores, and they would fight for them.
        "OMP_NUM_THREADS": str(job.threads or max(1, len(os.sched_getaffinity(0)) // start.world_size)),
        "NCCL_DEBUG": "WARN",
        # How many collectives the flight recorder remembers per rank.
        "TORCH_FR_BUFFER_SIZE": "2000",
        # How long NCCL's watchdog may stand still before it aborts the rank. The supervisor comes first: it
        # knows what the rank was about, and that compiling and saving take longer than a step.
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": str(math.ceil(max(job.stall_s, job.start_s)) + _AFTER_US_S),
        **_allocator(job),
        **_deterministic(job),
        # Torch's launcher asks in the agent whether there is a GPU. Without this it initialises the CUDA
        # driver there, which the agent does not need, and which its forks could not use.
        **({"PYTORCH_NVML_BASED_CUDA_CHECK": "1"} if job.gpus else {}),
        **_local_interface(job, inherited),
        # As `accelerate launch --cpu` does: else each rank of accelerate trains alone.
        **({} if job.gpus else {"ACCELERATE_USE_CPU": "true"}),
    }


def _wandb(job: Job) -> dict[str, str]:
    """What W&B takes for a run of a batch, where the user's program, `env:` or secrets say nothing else.

    Its table then has the runs of a batch together: https://docs.wandb.ai/guides/track/environment-variables.
    """
    if job.batch is None or job.train is not None:  # the onboard trainer says it itself
        return {}
    name = f"{job.name} {job.run_id}".strip()
    return {"WANDB_RUN_GROUP": job.batch.name, "WANDB_TAGS": job.batch.tag, "WANDB_NAME": name}


def _allocator(job: Job) -> dict[str, str]:
    """Use free GPU memory that lies in pieces as a whole, so that larger micro-batches fit."""
    if job.train is None or not job.gpus or "PYTORCH_CUDA_ALLOC_CONF" in job.env:
        return {}
    return {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}


def _deterministic(job: Job) -> dict[str, str]:
    """Let NVIDIA's libraries add numbers in the same order each time; they read this when they are loaded."""
    if job.train is None or not job.train.deterministic:
        return {}
    return {
        # With workspaces of its own choice cuBLAS may take other kernels the next time, and torch refuses it.
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        # NVLink's switches add in another order each time (NVIDIA/nccl#1497), and NCCL chooses among the
        # other algorithms by the speed that it expects of the machine.
        "NCCL_ALGO": "Ring",
    }


def _local_interface(job: Job, inherited: Mapping[str, str]) -> dict[str, str]:
    """Let gloo use the loopback interface where all ranks of the onboard trainer are on this machine.

    Otherwise gloo looks up this machine's own name in every process; where it does not resolve, this takes 5
    to 20 seconds.
    """
    if job.train is None or job.nodes > 1 or "GLOO_SOCKET_IFNAME" in inherited:
        return {}
    interface = interface_of(LOOPBACK)
    return {"GLOO_SOCKET_IFNAME": interface} if interface else {}


def _found_to_work(box: Path) -> dict[str, str]:
    """Return how the GPUs of this machine can talk, as the preflight found out."""
    try:
        found = json.loads((box / layout.PREFLIGHT).read_text(encoding="utf-8"))["env"]
        return {str(name): str(value) for name, value in found.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}  # it was not needed, or did not get that far


def ours(box: Path) -> dict[str, str]:
    """Return what a job may not change."""
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
        # Each rank's watchdog reads a pipe of its own there: a byte makes it write the file above now.
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(box / layout.RECORDER_PIPES / "rank-"),
        # Ranks meet in a store of their own: the agent, and any store in it, is frozen while they stop.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }


def _start(start: Start) -> dict[str, str]:
    """Return what is different from one start of the ranks to the next."""
    env = {"VASTRUN_RESTART": str(start.number), RESUME: start.resume}
    if start.micro_batch is not None:
        env["VASTRUN_MICRO_BATCH"] = str(start.micro_batch)
    if start.gpus:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(start.gpus)
    return env


def _paths(job: Job, box: Path, asked: Mapping[str, str]) -> dict[str, str]:
    """Let `python` be the Python that trains: it finds the trainer, and the trainer the user's code."""
    code = [str(box / layout.CODE)] if job.train else []
    modules = [str(_PACKAGES), *code, *_folders(asked.get("PYTHONPATH", ""))]
    programs = [str(Path(sys.executable).parent), asked.get("PATH", os.defpath)]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(modules)), "PATH": os.pathsep.join(programs)}


def _folders(path: str) -> list[str]:
    return [folder for folder in path.split(os.pathsep) if folder]
