"""What the daemon's computer has to offer to a job, and what it lacks."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence

from vastrun.launcher.core import Offer
from vastrun.launcher.core.errors import NoOfferError
from vastrun.launcher.core.job import JobSpec, Resources
from vastrun.launcher.image.local import built_here, images_here
from vastrun.launcher.image.lock import Lock
from vastrun.launcher.providers.docker.boxes import CPU_ONLY
from vastrun.launcher.providers.docker.engine import Engine
from vastrun.launcher.providers.docker.rows import DockerHost
from vastrun.launcher.providers.hardware import (
    Hardware,
    LocalGpu,
    fitting_gpus,
    gpus_here,
    of_all_nodes,
    remedy,
    shortfall,
)

_CPU = "cpu"


def hardware_of(docker_host: DockerHost, wanted: Resources, *, remote: bool, visible: str | None) -> Hardware:
    """Return what a container could have there. `visible`: the GPUs that may be used, with the daemon here.

    A remote daemon tells neither which GPUs it has nor its free disk. Both are taken to be as wanted, but for
    limits on the kind of GPU; the box looks for itself before it trains.
    """
    if remote:
        unknown = [LocalGpu(uuid=str(index), name="", memory_gb=0.0) for index in range(wanted.gpus)]
        gpus, cuda = tuple(unknown) if docker_host.gives_gpus else (), 0.0
        disk_gb = wanted.disk_gb
    else:
        gpus, cuda = gpus_here(visible)
        disk_gb = _free_gb(docker_host.folder) or wanted.disk_gb
    return Hardware(
        cores=docker_host.cores, memory_gb=docker_host.memory_gb, disk_gb=disk_gb, gpus=gpus, cuda=cuda
    )


def offers_for(spec: JobSpec, docker_host: DockerHost, hardware: Hardware) -> list[Offer]:
    """Return the computer as the job would use it; of its GPUs a part for each node.

    Raises NoOfferError, which says all that it lacks.
    """
    needed, each = of_all_nodes(spec), spec.resources.gpus
    if lacking := shortfall(hardware, needed):
        raise NoOfferError(
            f"{docker_host.name} does not fit the job: " + "; ".join(lacking),
            hint=remedy(hardware, needed) if spec.nodes == 1 else "fewer nodes, or less on each",
        )
    gpus = fitting_gpus(hardware, needed)
    starts = [node * each for node in range(spec.nodes)] if each else [0]
    return [_offer(docker_host, hardware, gpus[start : start + each]) for start in starts]


def _offer(docker_host: DockerHost, hardware: Hardware, gpus: Sequence[LocalGpu]) -> Offer:
    kind = (gpus[0].name or None) if gpus else None
    room = f"{docker_host.cores} cores, {docker_host.memory_gb:.0f} GB memory"
    devices = f"{len(gpus)} x {kind or 'GPU'}, " if gpus else ""
    return Offer(
        id=",".join(gpu.uuid for gpu in gpus) or CPU_ONLY,
        host=docker_host.name,
        gpu_name=kind,
        gpus=len(gpus),
        gpu_memory_gb=min((gpu.memory_gb for gpu in gpus), default=0.0),
        disk_gb=hardware.disk_gb,
        usd_per_hour=0.0,
        description=f"Docker on {docker_host.name}: {devices}{room}",
        cuda=hardware.cuda,
    )


def _free_gb(folder: str) -> float | None:
    """None: Docker's disk cannot be looked at, as where it has a virtual machine of its own."""
    try:
        return shutil.disk_usage(folder).free / 1e9
    except OSError:
        return None


def image_for(spec: JobSpec, hardware: Hardware, engine: Engine, lock: Lock) -> tuple[str, bool]:
    """Return the image's name, and whether it is ours. Raises NoOfferError, which says how to get one."""
    if spec.image is not None:
        if not engine.has_image(spec.image):
            raise NoOfferError(f"Docker has no image {spec.image}", hint=f"docker pull {spec.image}")
        return spec.image, False
    variants = _variants(lock, on_gpus=spec.resources.gpus > 0, driver_cuda=hardware.cuda or math.inf)
    # Of the variants that are here the best: a launch does not wait for a build, which takes minutes.
    for variant in variants:
        built = built_here(engine.client, variant, lock)
        if built is not None:
            return built.reference or built.id, True
    known = " or ".join(variants)
    raise NoOfferError(
        f"Docker has no image of vastrun for this job ({known or 'no variant fits the driver'})",
        hint=f"vastrun image build --variant {variants[0] if variants else _CPU}, or image: in the job file",
    )


def variants_here(engine: Engine) -> list[str]:
    """List the variants that an image of ours is there of. Raises ImageError."""
    return sorted({image.variant for image in images_here(engine.client)})


def _variants(lock: Lock, *, on_gpus: bool, driver_cuda: float) -> Sequence[str]:
    """Those that run there, the best first. One for GPUs trains without them, too."""
    for_gpus = [
        name
        for name, image in lock.images.items()
        if image.cuda is not None and (not on_gpus or image.driver_cuda <= driver_cuda)
    ]
    return for_gpus if on_gpus else [_CPU, *for_gpus]
