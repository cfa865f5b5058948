"""The image that a container is made of: the job's own, or the newest of ours that was built here."""

from __future__ import annotations

import math
from collections.abc import Sequence

from launcher.core.errors import NoOfferError
from launcher.core.job import JobSpec
from launcher.image.here import built_here, images_here
from launcher.image.lock import Lock
from launcher.providers.docker.engine import Engine
from launcher.providers.hardware import Hardware

_CPU = "cpu"


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
