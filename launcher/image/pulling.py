"""Pulling: an image that is not here yet is fetched, layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.core.image_ref import Reference
from launcher.image.daemon import explained
from launcher.image.lock import ARCHITECTURE
from launcher.image.stream import BuildScreen, follow

if TYPE_CHECKING:
    from docker import DockerClient


def have(client: DockerClient, reference: Reference, screen: BuildScreen) -> None:
    """Pull the image unless it is here. Raises ImageError."""
    if is_here(client, reference):
        return
    doing = f"cannot pull {reference}"
    with explained(doing):
        messages = client.api.pull(
            reference.name,
            tag=reference.digest or reference.tag or "latest",
            stream=True,
            decode=True,
            platform=f"linux/{ARCHITECTURE}",
        )
        follow(messages, screen, name="pull", doing=doing)
    screen.step("pull", str(reference))


def is_here(client: DockerClient, reference: Reference) -> bool:
    """Tell whether Docker has the image, without asking a registry. Raises ImageError."""
    from docker.errors import ImageNotFound

    with explained(f"cannot look for {reference}"):
        try:
            client.images.get(str(reference))
        except ImageNotFound:
            return False
        return True
