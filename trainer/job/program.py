"""Train program: how a training is started and watched on its machine. No torch: the launcher imports it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import cast

from vastrun.contract.job import Job
from vastrun.contract.program import PrepareStep, ProgramSpec
from vastrun.contract.records import read_as
from vastrun.trainer.job.config import TrainConfig

PACKAGE = "vastrun.trainer"
TORCH = ("2.11", "2.16")
"""Versions that the trainer supports: from the first, below the second."""
PYTHON = "3.11"
"""Oldest Python that the trainer supports."""
MAX_RESTARTS: Mapping[str, int] = {
    "out_of_memory": 10,
    "signal": 3,
    "communication": 3,
    "hang": 2,
    "host": 3,
}
"""Default of `restarts` of a training: maximum restarts of its ranks on this machine, by cause."""
_EXPANDABLE = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
_PREPARE = (
    PrepareStep(name="35-check-model", module=f"{PACKAGE}.workload.own_model"),
    PrepareStep(name="40-data", module=f"{PACKAGE}.data", arguments=("generate", "--jobs", "auto")),
    PrepareStep(name="42-check-data", module=f"{PACKAGE}.data", arguments=("check", "--quick")),
    PrepareStep(name="evaluate", module=f"{PACKAGE}.evaluation"),
)


def program_of(train: TrainConfig, *, gpus: int, variables: Collection[str]) -> ProgramSpec:
    """Return the program of a training. `variables`: names in the job's `env:`."""
    limits = {name.removesuffix("_s"): seconds for name, seconds in vars(train.limits).items()}
    return ProgramSpec(
        kind="train",
        module=f"{PACKAGE}.train",
        package=PACKAGE,
        config=asdict(train),
        env={
            "OMP_NUM_THREADS": str(train.threads),
            # Fragmented GPU memory can be used then, and larger micro-batches fit.
            **(_EXPANDABLE if gpus and "PYTORCH_CUDA_ALLOC_CONF" not in variables else {}),
            **(_same_sums() if train.deterministic else {}),
        },
        prepare=_PREPARE,
        preload=(
            "torch._dynamo",  # else DDP's constructor imports it
            f"{PACKAGE}.loop",
            # Its import would take rank 0 half a second during its first steps.
            *(("wandb",) if train.wandb.mode != "off" else ()),
        ),
        torch=TORCH,
        python=PYTHON,
        keeps_records=True,
        uses_gloo=True,
        stages=train.stage_spans,
        activity_timeouts_s={name: seconds for name, seconds in limits.items() if seconds is not None},
        max_restarts=MAX_RESTARTS,
        global_batch_size=train.batch,
        out_of_memory="fail" if train.out_of_memory == "fail" else "halve",
        wandb_closer=f"{PACKAGE}.telemetry.tracker",
    )


def config_of(job: Job) -> TrainConfig:
    """Read the options of a training from its job. Raises RecordError, a ValueError."""
    return cast(TrainConfig, read_as(TrainConfig, job.program.config))


def _same_sums() -> dict[str, str]:
    """Make NVIDIA's libraries sum in the same order each time; they read this when they are loaded."""
    return {
        # With default workspaces cuBLAS may choose other kernels the next time, and torch rejects it.
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        # NVLink's switches sum in another order each time (NVIDIA/nccl#1497), and NCCL chooses among the
        # other algorithms by the expected speed of the machine.
        "NCCL_ALGO": "Ring",
    }
