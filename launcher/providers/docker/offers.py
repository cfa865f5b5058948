"""Hardware of the daemon's computer, and the choice of an image."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence

from vastrun.launcher.core.errors import NoOfferError
from vastrun.launcher.core.job import JobSpec, Resources
from vastrun.launcher.image.local_images import local_images, newest_local_image
from vastrun.launcher.image.lock import Lock
from vastrun.launcher.providers.docker.containers import DockerHost
from vastrun.launcher.providers.docker.engine import Engine
from vastrun.launcher.providers.hardware import Hardware, LocalGpu, read_gpus

_CPU = "cpu"


def daemon_hardware(
    docker_host: DockerHost, requirements: Resources, *, remote: bool, visible: str | None
) -> Hardware:
    """Return the hardware available to containers. `visible`: GPUs of a local daemon that may be used.

    A remote daemon reports neither its GPUs nor its free disk: both are assumed to meet the requirements,
    except for names and memory of GPUs. The box checks them before it trains.
    """
    if remote:
        unknown = [LocalGpu(uuid=str(index), name="", memory_gb=0.0) for index in range(requirements.gpus)]
        gpus, cuda = tuple(unknown) if docker_host.has_gpus else (), 0.0
        disk_gb = requirements.disk_gb
    else:
        gpus, cuda = read_gpus(visible)
        # Unknown counts as enough: the box measures its disk before it trains, and costs nothing until then.
        disk_gb = _free_gb(docker_host.folder) or requirements.disk_gb
    return Hardware(
        cores=docker_host.cores, memory_gb=docker_host.memory_gb, disk_gb=disk_gb, gpus=gpus, cuda=cuda
    )


def _free_gb(folder: str) -> float | None:
    """Return the free space of Docker's disk; None when it is not visible, as with Docker Desktop's VM."""
    try:
        return shutil.disk_usage(folder).free / 1e9
    except OSError:
        return None


def choose_image(spec: JobSpec, hardware: Hardware, engine: Engine, lock: Lock) -> tuple[str, bool]:
    """Return the image's name, and whether it is one of vastrun's. Raises NoOfferError with a hint."""
    if spec.image is not None:
        if not engine.has_image(spec.image):
            raise NoOfferError(f"Docker has no image {spec.image}", hint=f"docker pull {spec.image}")
        return spec.image, False
    variants = _variants(lock, on_gpus=spec.resources.gpus > 0, driver_cuda=hardware.cuda or math.inf)
    # Only images that exist already: a launch must not wait for a build, which takes minutes.
    for variant in variants:
        built = newest_local_image(engine.client, variant, lock)
        if built is not None:
            return built.reference or built.id, True
    known = " or ".join(variants)
    raise NoOfferError(
        f"Docker has no image of vastrun for this job ({known or 'no variant fits the driver'})",
        hint=f"vastrun image build --variant {variants[0] if variants else _CPU}, or image: in the job file",
    )


def built_variants(engine: Engine) -> list[str]:
    """List the variants of vastrun's images that the daemon has. Raises ImageError."""
    return sorted({image.variant for image in local_images(engine.client)})


def _variants(lock: Lock, *, on_gpus: bool, driver_cuda: float) -> Sequence[str]:
    """Return the variants that run there, best first. Variants for GPUs also train without them."""
    for_gpus = [
        name
        for name, image in lock.images.items()
        if image.cuda is not None and (not on_gpus or image.driver_cuda <= driver_cuda)
    ]
    return for_gpus if on_gpus else [_CPU, *for_gpus]
