"""What `sbatch` is given: the options, and the script, which is the lease."""

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
"""A file in the box of node 0."""
SIGNAL_S = 90
"""So long before its end a job has SIGTERM."""
_SLACK_S = 120.0
"""A job is started, and its lease armed, within this: the lease ends first."""
_SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True, kw_only=True)
class JobOrder:
    """A job to be made."""

    ids: tuple[str, ...]
    """Of its instances, by node."""
    order: RentalOrder
    share: NodeShare
    max_s: float | None
    """The longest that the partition allows."""
    folder: str
    """The boxes', absolute, on the shared disk."""
    python: str
    settings: SlurmSettings

    @property
    def instance_id(self) -> str:
        """Of node 0, whose name the job has."""
        return self.ids[0]

    @property
    def minutes(self) -> int:
        """Its time limit: the lease's, and some more where the partition allows that."""
        lease_s = float(self.order.env["LEASE_LIFE_S"])
        max_s = math.inf if self.max_s is None else max(self.max_s, lease_s)
        return max(1, math.ceil(min(lease_s + _SLACK_S, max_s) / 60))


def options_of(batch: JobOrder) -> Sequence[str]:
    """Return the options of `sbatch`. The user's own come last: of two the last one holds."""
    share = batch.share
    return (
        "--parsable",
        f"--comment={batch.order.label}",
        f"--job-name={LABEL_PREFIX}{batch.instance_id}",
        f"--partition={share.partition}",
        f"--time={batch.minutes}",
        f"--signal=B:TERM@{SIGNAL_S}",
        # A job that Slurm began anew would meet the box of its former self.
        "--no-requeue",
        f"--nodes={len(batch.ids)}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={share.cores}",
        *([f"--mem={share.memory_mb}M"] if share.memory_mb else []),
        *([f"--gres={share.gres}"] if share.gpus else []),
        "--output=/dev/null",
        *batch.settings.sbatch,
    )


def script_of(batch: JobOrder) -> str:
    """Return the batch script. Holds no secret."""
    ours = {"VASTRUN_PYTHON": batch.python, "VASTRUN_TERM": "preempted"}
    environment = [f"{name}={value}" for name, value in {**batch.order.env, **ours}.items()]
    lines = (
        "#!/bin/bash",
        f"folder={shlex.quote(batch.folder)}",
        f"instances=({shlex.join(batch.ids)})",
        f"labels=({shlex.join(batch.order.nodes or (batch.order.label,))})",
        f"cores={batch.share.cores}",
        f"seconds={batch.minutes * 60}",
        f"environment=({shlex.join(environment)})",
        f"around=({shlex.join(_around(batch))})",
        f"lease={shlex.quote(batch.order.onstart)}",
        f"server={shlex.quote(_script('server'))}",
        "prepare() {",
        "  :",
        *batch.settings.setup,
        "}",
        _script("job"),
    )
    return "\n".join(lines)


def ask_argv(take_s: float, limit_s: float, command: str) -> Sequence[str]:
    """Return the words that have the job of a box run a command; the box is the working folder."""
    return ("bash", "--norc", "-c", _script("ask"), "ask", f"{take_s:.0f}", f"{limit_s:.3f}", command)


def _around(batch: JobOrder) -> Sequence[str]:
    """What starts a program in the job's container; empty: there is none."""
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
