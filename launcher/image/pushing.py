"""Pushing an image to a registry, with the login that `docker login` keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.core.errors import ImageError
from launcher.core.image_ref import Reference
from launcher.image.daemon import explained
from launcher.image.stream import BuildScreen, follow

if TYPE_CHECKING:
    from docker import DockerClient


def push(client: DockerClient, image: Reference, repository: str, screen: BuildScreen) -> Reference:
    """Push the image; return it as the registry has it now, by its digest. Raises ImageError."""
    doing = f"cannot push {image} to {repository}"
    with explained(doing):
        client.images.get(str(image)).tag(repository, tag=image.tag)
        messages = client.api.push(repository, tag=image.tag, stream=True, decode=True)
        told = follow(messages, screen, name="push", doing=doing)
    digest = next((record["Digest"] for record in told if record.get("Digest")), "")
    if not digest:
        raise ImageError(f"{doing}: the registry named no digest")
    pushed = Reference.of(f"{repository}:{image.tag}@{digest}")
    screen.step("push", str(pushed))
    return pushed
