"""Hardware of this computer, and its comparison with a job's requirements."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vastrun.contract.gpus import PEAKS, peak_of
from vastrun.contract.texts import how_many
from vastrun.launcher.core import Offer
from vastrun.launcher.core.errors import NoOfferError
from vastrun.launcher.core.gpus import has_memory, is_named, nearest_names
from vastrun.launcher.core.job import JobSpec, Resources

CPU_ONLY = "cpu"
"""Id of an offer without GPUs; other ids are lists of the offer's GPUs."""


@dataclass(frozen=True, kw_only=True)
class LocalGpu:
    """One GPU as listed by nvidia-smi."""

    uuid: str
    """Value for CUDA_VISIBLE_DEVICES that does not depend on the order of devices."""
    name: str
    memory_gb: float
    """0 when unknown."""


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """Hardware of this computer; `disk_gb` is free space."""

    cores: int
    memory_gb: float
    disk_gb: float
    gpus: tuple[LocalGpu, ...] = ()
    cuda: float = 0.0
    """Newest CUDA version that the driver supports; 0 without a driver."""


def read_hardware(folder: Path, *, visible: str | None = None) -> Hardware:
    """Read this computer's hardware, with the free disk space at `folder`, which need not exist yet.

    `visible`: value of CUDA_VISIBLE_DEVICES; None: all GPUs.
    """
    while not folder.exists():
        folder = folder.parent
    gpus, cuda = read_gpus(visible)
    return Hardware(
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_gb=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9,
        disk_gb=shutil.disk_usage(folder).free / 1e9,
        gpus=gpus,
        cuda=cuda,
    )


def read_gpus(visible: str | None) -> tuple[tuple[LocalGpu, ...], float]:
    """Return this computer's GPUs and the newest CUDA version that the driver supports."""
    rows = _nvidia_smi("--query-gpu=index,uuid,memory.total,name", "--format=csv,noheader,nounits")
    chosen = None if visible is None else [*filter(None, map(str.strip, visible.split(",")))]
    gpus = []
    for row in rows.splitlines():
        index, uuid, mib, name = (field.strip() for field in row.split(",", 3))
        # The user's own CUDA_VISIBLE_DEVICES holds for boxes, too: other programs may train on the rest.
        if chosen is None or any(choice == index or uuid.startswith(choice) for choice in chosen):
            # "[N/A]" where it shares the computer's memory.
            memory_gb = round(int(mib) / 1024) if mib.isdecimal() else 0
            gpus.append(LocalGpu(uuid=uuid, name=name, memory_gb=memory_gb))
    version = re.search(r"CUDA[A-Z ]{0,40} Version:\s*([\d.]+)", _nvidia_smi()) if gpus else None
    return tuple(gpus), float(version[1]) if version else 0.0


def matching_gpus(hardware: Hardware, needed: Resources) -> list[LocalGpu]:
    """Return the GPUs whose name and memory fit the job."""
    return [
        gpu
        for gpu in hardware.gpus
        if has_memory(gpu.memory_gb, needed.min_gpu_gb)
        and (not needed.gpu_names or any(is_named(name, gpu.name) for name in needed.gpu_names))
    ]


def node_offers(
    spec: JobSpec, hardware: Hardware, *, name: str, host: str, where: str, usd_per_hour: float = 0.0
) -> list[Offer]:
    """Return one computer as an offer; with GPUs and several nodes, an offer for each node with its GPUs.

    `name`: the computer in an error. `where`: the first words of the description. Raises NoOfferError with
    all unmet requirements.
    """
    needed, each = spec.resources.times(spec.nodes), spec.resources.gpus
    unmet = [(text, fix) for lacking, text, fix in _checks(hardware, needed) if lacking]
    if unmet:
        fixes = "; ".join(fix for _, fix in unmet)
        raise NoOfferError(
            f"{name} does not meet the job's requirements: " + "; ".join(text for text, _ in unmet),
            hint=fixes if spec.nodes == 1 else "fewer nodes, or less on each",
        )
    fitting, offers = matching_gpus(hardware, needed), []
    for node in range(spec.nodes if each else 1):
        gpus = fitting[node * each : (node + 1) * each]
        kind = (gpus[0].name or None) if gpus else None
        devices = f"{len(gpus)} x {kind or 'GPU'}, " if gpus else ""
        offer = Offer(
            id=",".join(gpu.uuid for gpu in gpus) or CPU_ONLY,
            host=host,
            gpu_name=kind,
            gpus=len(gpus),
            gpu_memory_gb=min((gpu.memory_gb for gpu in gpus), default=0.0),
            disk_gb=hardware.disk_gb,
            usd_per_hour=usd_per_hour,
            description=f"{where}: {devices}{hardware.cores} cores, {hardware.memory_gb:.0f} GB memory",
            cuda=hardware.cuda,
        )
        offers.append(offer)
    return offers


def _checks(hardware: Hardware, needed: Resources) -> Iterator[tuple[bool, str, str]]:
    """Yield for each requirement: whether it is unmet, a text, and a fix."""
    gpus = len(matching_gpus(hardware, needed))
    kind = " or ".join(needed.gpu_names)
    size = f" with {needed.min_gpu_gb:g} GB" if needed.min_gpu_gb else ""
    wants_gpus = (
        f"{how_many(needed.gpus, 'GPU')}{f' of {kind}' if kind else ''}{size} needed, {gpus or 'none'} here"
    )
    known = (*PEAKS, *(gpu.name for gpu in hardware.gpus))
    unknown = [name for name in needed.gpu_names if not peak_of(name)]
    if near := [each for name in unknown for each in nearest_names(name, known)]:
        wants_gpus += f"; did you mean {' or '.join(near)}?"
    fix = f"--set resources.gpus={gpus}{'' if gpus else ' trains on the CPU'}"
    yield gpus < needed.gpus, wants_gpus, fix
    amounts = (
        ("cpu_cores", needed.cpu_cores, hardware.cores, "{} CPU cores needed, {} here"),
        ("memory_gb", needed.memory_gb, hardware.memory_gb, "{:g} GB of memory needed, {:.0f} here"),
        ("disk_gb", needed.disk_gb, hardware.disk_gb, "{:g} GB of disk needed, {:.0f} free here"),
    )
    for key, requested, here, text in amounts:
        fix = f"--set resources.{key}={math.floor(here)}"
        if key == "disk_gb" and here < 8.0:  # with hardly any disk left, no valid disk_gb fits
            fix = "free some disk space"
        yield here < requested, text.format(requested, here), fix
    yield (
        needed.gpus > 0 and 0 < hardware.cuda < needed.cuda,
        f"CUDA {needed.cuda:g} needed, the driver here supports {hardware.cuda:g}",
        f"update the driver, or --set resources.cuda={hardware.cuda:g}",
    )


def _nvidia_smi(*options: str) -> str:
    """Return the output of nvidia-smi; empty when it is missing or fails."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *options], capture_output=True, text=True, timeout=20.0, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
