"""Stream: pulls, pushes and the progress messages of Docker's daemon, layer by layer."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from vastrun.launcher.core.errors import ImageError
from vastrun.launcher.core.image_ref import ImageReference
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.budget import ExchangeBudget
from vastrun.launcher.image.daemon import docker_errors, image_error
from vastrun.launcher.image.lock import ARCHITECTURE

if TYPE_CHECKING:
    from docker import DockerClient

_LAST_LINES = 12
_STEP = re.compile(r"Step (\d+/\d+) : (.+)")
_CACHED = "---> Using cache"
_CHATTER = ("--->", "Removing intermediate container")
_STYLE = re.compile(r"\x1b\[[\d;]*m")
_WIDTH = 100


class BuildScreen(Protocol):
    """Screen of a build, pull or push."""

    def step(self, name: str, text: str) -> None:
        """Show a line that stays."""
        ...

    def gauge(self, text: str) -> None:
        """Show how far it is: overwritten by the next."""
        ...


class Layers:
    """Transferred bytes of each layer."""

    def __init__(self) -> None:
        self._layers: dict[str, tuple[str, int, int]] = {}

    def see(self, message: Mapping[str, Any]) -> bool:
        """Record a message; return False when it has no bytes of a layer."""
        detail, layer = message.get("progressDetail") or {}, message.get("id")
        if not layer or "progressDetail" not in message:
            return False
        _, done, size = self._layers.get(layer, ("", 0, 0))
        moving = message.get("status") in ("Downloading", "Pushing")
        if moving and detail.get("total"):
            done, size = int(detail.get("current", 0)), int(detail["total"])
        self._layers[layer] = (str(message.get("status"))[:_WIDTH], done, size)
        return True

    def __len__(self) -> int:
        return len(self._layers)

    def __str__(self) -> str:
        at_rest = ("Pull complete", "Pushed", "Already exists", "Layer already exists", "Mounted from")
        ready = sum(status.startswith(at_rest) for status, _, _ in self._layers.values())
        done_mb = sum(done for _, done, _ in self._layers.values()) / 1e6
        size_mb = sum(size for _, _, size in self._layers.values()) / 1e6
        amount = f", {done_mb:.0f} of {size_mb:.0f} MB" if size_mb else ""
        return f"{ready} of {len(self._layers)} layers{amount}"


def follow(messages: Iterable[Mapping[str, Any]], screen: BuildScreen, *, name: str, doing: str) -> list[Any]:
    """Show the messages as steps of that name; return the daemon's other records.

    Raises ImageError with the daemon's reason, and the last lines that the build printed.
    """
    layers, records, printed = Layers(), [], deque[str](maxlen=_LAST_LINES)
    budget = ExchangeBudget(caps.EXCHANGES["docker"], now=time.monotonic, sender="Docker", error=ImageError)
    for message in messages:
        # The daemon answers 200 at once: that a pull or a build failed stands in its stream only.
        if "error" in message:
            raise image_error(doing, str(message["error"]), printed)
        known = len(layers)
        if "aux" in message:
            records.append(message["aux"])
        is_of_a_layer = layers.see(message)
        stays = "aux" in message or len(layers) > known
        budget.spend(items=1, memory=len(str(message)) if stays else 0)
        if is_of_a_layer:
            screen.gauge(f"{name}: {layers}")
        for line in _STYLE.sub("", str(message.get("stream", ""))).splitlines():
            _show(line.strip(), screen, name, printed)
    return records


def _show(line: str, screen: BuildScreen, name: str, printed: deque[str]) -> None:
    step = _STEP.match(line)
    if step and not step[2].startswith("ARG "):
        screen.step(name, f"{step[1]} {' '.join(step[2].split())}"[:_WIDTH])
    elif line == _CACHED:
        screen.gauge(f"{name}: as it was before")
    elif line and not step and not line.startswith(_CHATTER):
        printed.append(line)
        screen.gauge(f"{name}: {line}")


def pull_if_missing(client: DockerClient, reference: ImageReference, screen: BuildScreen) -> None:
    """Pull the image unless it is here. Raises ImageError."""
    if has_image(client, reference):
        return
    doing = f"cannot pull {reference}"
    with docker_errors(doing):
        messages = client.api.pull(
            reference.name,
            tag=reference.digest or reference.tag or "latest",
            stream=True,
            decode=True,
            platform=f"linux/{ARCHITECTURE}",
        )
        follow(messages, screen, name="pull", doing=doing)
    screen.step("pull", str(reference))


def has_image(client: DockerClient, reference: ImageReference) -> bool:
    """Tell whether Docker has the image, without asking a registry. Raises ImageError."""
    from docker.errors import ImageNotFound

    with docker_errors(f"cannot look for {reference}"):
        try:
            client.images.get(str(reference))
        except ImageNotFound:
            return False
        return True


def push(client: DockerClient, image: ImageReference, repository: str, screen: BuildScreen) -> ImageReference:
    """Push the image; return it as the registry has it now, by its digest. Raises ImageError."""
    doing = f"cannot push {image} to {repository}"
    with docker_errors(doing):
        client.images.get(str(image)).tag(repository, tag=image.tag)
        messages = client.api.push(repository, tag=image.tag, stream=True, decode=True)
        records = follow(messages, screen, name="push", doing=doing)
    digest = next((record["Digest"] for record in records if record.get("Digest")), "")
    if not digest:
        raise ImageError(f"{doing}: the registry named no digest")
    pushed = ImageReference.of(f"{repository}:{image.tag}@{digest}")
    screen.step("push", str(pushed))
    return pushed
