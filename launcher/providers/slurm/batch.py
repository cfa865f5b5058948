"""Input of `sbatch`: its options, and the batch script, which runs the lease."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vastrun.launcher.core import LABEL_PREFIX, RentalOrder
from vastrun.launcher.core.settings import SlurmSettings
from vastrun.launcher.providers.slurm.offers import NodeShare

RENDEZVOUS = ".rendezvous"
"""File in the box of node 0 with the rendezvous address."""
SIGNAL_S = 90
"""Seconds between SIGTERM and the end of a job."""
_START_S = 120.0
"""Seconds for the start of a job and its lease, added to the time limit so that the lease expires first."""
_SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True, kw_only=True)
class JobOrder:
    """Order for one job."""

    ids: tuple[str, ...]
    """Ids of its instances, by node."""
    order: RentalOrder
    share: NodeShare
    max_s: float | None
    """Maximum seconds of a job in the partition; None: no limit."""
    folder: str
    """Absolute path of the boxes' folder on the shared disk."""
    python: str
    settings: SlurmSettings

    @property
    def instance_id(self) -> str:
        """Instance of node 0, which gives the job its name."""
        return self.ids[0]

    @property
    def minutes(self) -> int:
        """Time limit in minutes: that of the lease plus a margin, within the partition's limit."""
        lease_s = float(self.order.env["LEASE_LIFE_S"])
        max_s = math.inf if self.max_s is None else max(self.max_s, lease_s)
        return max(1, math.ceil(min(lease_s + _START_S, max_s) / 60))


def sbatch_options(batch: JobOrder) -> Sequence[str]:
    """Return the options of `sbatch`. The user's options come last, since the last of two counts."""
    share = batch.share
    return (
        "--parsable",
        f"--comment={batch.order.label}",
        f"--job-name={LABEL_PREFIX}{batch.instance_id}",
        f"--partition={share.partition}",
        f"--time={batch.minutes}",
        f"--signal=B:TERM@{SIGNAL_S}",
        # A requeued job would find the box of its previous start.
        "--no-requeue",
        f"--nodes={len(batch.ids)}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={share.cores}",
        *([f"--mem={share.memory_mb}M"] if share.memory_mb else []),
        *([f"--gres={share.gres}"] if share.gpus else []),
        "--output=/dev/null",
        *batch.settings.sbatch,
    )


def batch_script(batch: JobOrder) -> str:
    """Return the batch script, without secrets: other users may read it with scontrol."""
    variables = {"VASTRUN_PYTHON": batch.python, "VASTRUN_TERM": "preempted"}
    environment = [f"{name}={value}" for name, value in {**batch.order.env, **variables}.items()]
    lines = (
        "#!/bin/bash",
        f"folder={shlex.quote(batch.folder)}",
        f"instances=({shlex.join(batch.ids)})",
        f"labels=({shlex.join(batch.order.nodes or (batch.order.label,))})",
        f"cores={batch.share.cores}",
        f"seconds={batch.minutes * 60}",
        f"environment=({shlex.join(environment)})",
        f"around=({shlex.join(_container_command(batch))})",
        f"lease={shlex.quote(batch.order.onstart)}",
        f"server={shlex.quote(_script('server'))}",
        "prepare() {",
        "  :",
        *batch.settings.setup,
        "}",
        _script("job"),
    )
    return "\n".join(lines)


def ask_argv(accept_s: float, limit_s: float, command: str) -> Sequence[str]:
    """Return the argv that asks a box's job to run a command; run it in the box's folder.

    `accept_s`: seconds for the job to accept the command. `limit_s`: seconds for the command.
    """
    return ("bash", "--norc", "-c", _script("ask"), "ask", f"{accept_s:.0f}", f"{limit_s:.3f}", command)


def _container_command(batch: JobOrder) -> Sequence[str]:
    """Return the command prefix that runs a program in the job's container; empty without one."""
    image, folder = batch.order.image, batch.folder
    if batch.settings.container is None or image is None:
        return ()
    if batch.settings.container == "pyxis":
        mounts = f"--container-mounts={folder}:{folder}"
        return (
            "srun",
            "--overlap",
            "--ntasks=1",
            f"--container-image={image}",
            mounts,
            "--no-container-mount-home",
        )
    gpus = ("--nv",) if batch.share.gpus else ()
    where = image if image.startswith("/") or "://" in image else f"docker://{image}"
    return ("apptainer", "exec", *gpus, "--bind", f"{folder}:{folder}", where)


def _script(name: str) -> str:
    return (_SCRIPTS / f"{name}.sh").read_text(encoding="utf-8")
