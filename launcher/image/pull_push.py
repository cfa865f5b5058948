"""Pull and push: an image comes from a registry, or goes to one with the login that `docker login` keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.core.errors import ImageError
from launcher.core.image_ref import ImageReference
from launcher.image.daemon import explained
from launcher.image.lock import ARCHITECTURE
from launcher.image.stream import BuildScreen, follow

if TYPE_CHECKING:
    from docker import DockerClient


def have(client: DockerClient, reference: ImageReference, screen: BuildScreen) -> None:
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


def is_here(client: DockerClient, reference: ImageReference) -> bool:
    """Tell whether Docker has the image, without asking a registry. Raises ImageError."""
    from docker.errors import ImageNotFound

    with explained(f"cannot look for {reference}"):
        try:
            client.images.get(str(reference))
        except ImageNotFound:
            return False
        return True


def push(client: DockerClient, image: ImageReference, repository: str, screen: BuildScreen) -> ImageReference:
    """Push the image; return it as the registry has it now, by its digest. Raises ImageError."""
    doing = f"cannot push {image} to {repository}"
    with explained(doing):
        client.images.get(str(image)).tag(repository, tag=image.tag)
        messages = client.api.push(repository, tag=image.tag, stream=True, decode=True)
        told = follow(messages, screen, name="push", doing=doing)
    digest = next((record["Digest"] for record in told if record.get("Digest")), "")
    if not digest:
        raise ImageError(f"{doing}: the registry named no digest")
    pushed = ImageReference.of(f"{repository}:{image.tag}@{digest}")
    screen.step("push", str(pushed))
    return pushed
