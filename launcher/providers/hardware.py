"""What this computer has to train with, and what it lacks for a job."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vastrun.launcher.core.gpus import has_memory
from vastrun.launcher.core.job import JobSpec, Resources

_NVIDIA_SMI_S = 20.0
_MIN_DISK_GB = 8.0
"""No job asks for less."""


@dataclass(frozen=True, kw_only=True)
class LocalGpu:
    """One GPU, as nvidia-smi names it."""

    uuid: str
    """What CUDA_VISIBLE_DEVICES takes, whatever the order of the devices."""
    name: str
    memory_gb: float


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """This computer. `disk_gb` is what is free."""

    cores: int
    memory_gb: float
    disk_gb: float
    gpus: tuple[LocalGpu, ...] = ()
    cuda: float = 0.0
    """The newest CUDA version that the driver supports; 0: no driver."""


def look_around(folder: Path, *, visible: str | None = None) -> Hardware:
    """Describe this computer, with the free disk at `folder`, which need not exist yet.

    `visible`: the GPUs that may be used, as in CUDA_VISIBLE_DEVICES; None: all.
    """
    while not folder.exists():
        folder = folder.parent
    gpus, cuda = gpus_here(visible)
    return Hardware(
        cores=_cores(),
        memory_gb=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9,
        disk_gb=shutil.disk_usage(folder).free / 1e9,
        gpus=gpus,
        cuda=cuda,
    )


def _cores() -> int:
    """Those that this process may use, where the system can tell."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def gpus_here(visible: str | None) -> tuple[tuple[LocalGpu, ...], float]:
    """Return this computer's GPUs, and the newest CUDA version that their driver supports."""
    rows = _nvidia_smi("--query-gpu=index,uuid,memory.total,name", "--format=csv,noheader,nounits")
    gpus = []
    for row in rows.splitlines():
        index, uuid, mib, name = (field.strip() for field in row.split(",", 3))
        if visible is None or _is_among(visible, index, uuid):
            gpus.append(LocalGpu(uuid=uuid, name=name, memory_gb=round(float(mib) / 1024)))
    version = re.search(r"CUDA[A-Z ]* Version:\s*([\d.]+)", _nvidia_smi()) if gpus else None
    return tuple(gpus), float(version[1]) if version else 0.0


def of_all_nodes(spec: JobSpec) -> Resources:
    """Return what all nodes of the job need together, where they are on one computer."""
    wanted = spec.resources
    return replace(
        wanted,
        gpus=wanted.gpus * spec.nodes,
        cpu_cores=wanted.cpu_cores * spec.nodes,
        memory_gb=wanted.memory_gb * spec.nodes,
        disk_gb=wanted.disk_gb * spec.nodes,
    )


def fitting_gpus(hardware: Hardware, wanted: Resources) -> list[LocalGpu]:
    """Return the GPUs whose name and memory suit the job."""
    return [
        gpu
        for gpu in hardware.gpus
        if has_memory(gpu.memory_gb, wanted.least_gpu_gb)
        and (not wanted.gpu_names or any(_is_named(gpu, name) for name in wanted.gpu_names))
    ]


def shortfall(hardware: Hardware, wanted: Resources) -> list[str]:
    """Name every hard limit that is not met. Where a machine stands does not count: it is here."""
    return [text for lacking, text, _ in _checks(hardware, wanted) if lacking]


def remedy(hardware: Hardware, wanted: Resources) -> str:
    """Say what to type, or to do, so that all limits are met."""
    return "; ".join(fix for lacking, _, fix in _checks(hardware, wanted) if lacking)


def _checks(hardware: Hardware, wanted: Resources) -> Sequence[tuple[bool, str, str]]:
    """For each limit: whether it is not met, in words, and what to do then."""
    gpus = len(fitting_gpus(hardware, wanted))
    kind = " or ".join(wanted.gpu_names)
    size = f" with {wanted.least_gpu_gb:g} GB" if wanted.least_gpu_gb else ""
    noun = "GPU" if wanted.gpus == 1 else "GPUs"
    wants_gpus = f"{wanted.gpus} {noun}{f' of {kind}' if kind else ''}{size} wanted, {gpus or 'none'} here"
    # With hardly any disk left no smaller request helps.
    disk_fix = "free some disk space"
    if hardware.disk_gb >= _MIN_DISK_GB:
        disk_fix = f"--set resources.disk_gb={math.floor(hardware.disk_gb)}"
    return (
        (
            gpus < wanted.gpus,
            wants_gpus,
            f"--set resources.gpus={gpus}{'' if gpus else ' trains on the CPU'}",
        ),
        (
            hardware.cores < wanted.cpu_cores,
            f"{wanted.cpu_cores} CPU cores wanted, {hardware.cores} here",
            f"--set resources.cpu_cores={hardware.cores}",
        ),
        (
            hardware.memory_gb < wanted.memory_gb,
            f"{wanted.memory_gb:g} GB of memory wanted, {hardware.memory_gb:.0f} here",
            f"--set resources.memory_gb={math.floor(hardware.memory_gb)}",
        ),
        (
            hardware.disk_gb < wanted.disk_gb,
            f"{wanted.disk_gb:g} GB of disk wanted, {hardware.disk_gb:.0f} free here",
            disk_fix,
        ),
        (
            wanted.gpus > 0 and 0 < hardware.cuda < wanted.cuda,
            f"CUDA {wanted.cuda:g} wanted, the driver here supports {hardware.cuda:g}",
            f"update the driver, or --set resources.cuda={hardware.cuda:g}",
        ),
    )


def _is_named(gpu: LocalGpu, name: str) -> bool:
    """Vast says "A100 SXM4", the driver "NVIDIA A100-SXM4-80GB"."""
    return _words(name) <= _words(gpu.name)


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", name.lower()))


def _is_among(visible: str, index: str, uuid: str) -> bool:
    chosen = [choice.strip() for choice in visible.split(",")]
    return any(choice and (choice == index or uuid.startswith(choice)) for choice in chosen)


def _nvidia_smi(*options: str) -> str:
    """What nvidia-smi prints; empty where it is not installed or does not work."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *options], capture_output=True, text=True, timeout=_NVIDIA_SMI_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
