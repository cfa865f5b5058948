"""Docker's daemon, reached through its SDK, and its streams; every failure says what to do about it."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from vastrun.launcher.core.errors import ImageError
from vastrun.launcher.core.image_ref import ImageReference
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.caps import ExchangeBudget
from vastrun.launcher.image.lock import ARCHITECTURE, Lock
from vastrun.launcher.image.relock import LABEL, check_digest
from vastrun.launcher.package_files import install_command

if TYPE_CHECKING:
    from docker import DockerClient

_INSTALL = (
    "install Docker, or export DOCKER_HOST=ssh://user@host where there is one; where `docker ps` works: "
    "export DOCKER_HOST=$(docker context inspect --format '{{.Endpoints.docker.Host}}')"
)
# What Docker, its SDK or a registry writes, in plain words, and what to do. The first that fits counts.
_EXPLANATIONS: Sequence[tuple[str, str, str]] = (
    (r"FileNotFoundError|No such file or directory: .*sock", "there is no Docker on this computer", _INSTALL),
    (
        r"PermissionError|permission denied .*docker daemon",
        "your user has no access to Docker",
        "sudo usermod -aG docker $USER, and log in again",
    ),
    (
        r"ConnectionRefused|Connection refused|Connection aborted|Max retries|NameResolution",
        "Docker's daemon does not answer",
        "start Docker (sudo systemctl start docker, or Docker Desktop), or check DOCKER_HOST",
    ),
    (r"[Nn]o space left on device", "no space is left for Docker's images", "docker system prune"),
    (
        r"no matching manifest|specified platform|exec format error",
        "the image is for another architecture",
        "choose an image for linux/amd64",
    ),
    (r"executable file not found", "the image has no such program", "choose another image"),
    (r"^non-zero code", "a command of the Dockerfile failed", ""),
    (
        r"unauthorized|\bdenied: |access denied|is denied|authentication required|no basic auth|Forbidden",
        "the registry refuses access",
        "docker login REGISTRY",
    ),
    (
        r"manifest unknown|not found|No such image|name unknown|does not exist",
        "there is no such image",
        "check its name and its tag: vastrun image ls",
    ),
    (r"no such host|dial tcp", "the registry does not answer", "check its name, and that it can be reached"),
    (r"[Tt]imed out|timeout", "Docker or the registry took too long", "try again"),
)
_STEP = re.compile(r"Step (\d+/\d+) : (.+)")
_AT_REST = ("Pull complete", "Pushed", "Already exists", "Layer already exists", "Mounted from")
_STYLE = re.compile(r"\x1b\[[\d;]*m")


def connect() -> DockerClient:
    """Connect to the daemon of DOCKER_HOST, or this computer's. Raises ImageError."""
    _check_sdk()
    import docker

    with docker_errors("cannot reach Docker"):
        client = docker.from_env(timeout=120)
        client.ping()
        return client


@contextmanager
def docker_errors(doing: str) -> Iterator[None]:
    """Turn failures of Docker within into one ImageError: `doing`, why, and what to do."""
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    try:
        yield
    except (DockerException, RequestException) as error:
        message = getattr(error, "explanation", None) or str(error)
        raise image_error(doing, message, reason=reason_of(error)) from error


def image_error(doing: str, message: str, printed: Sequence[str] = (), *, reason: str = "") -> ImageError:
    """Return what Docker said as an error that can be acted on. `printed`: the last lines of a build.

    `reason`: the system's own words, shown instead of those of libraries.
    """
    message = " ".join(message.rpartition("' returned a ")[2].split())
    output = "".join(f"\n  {line}" for line in printed)
    for pattern, meaning, hint in _EXPLANATIONS:
        if re.search(pattern, f"{message} {output}" if "non-zero code" in message else message):
            return ImageError(f"{doing}: {meaning}: {reason or message[-300:]}{output}", hint=hint)
    return ImageError(f"{doing}: {message[-600:]}{output}")


def reason_of(error: BaseException) -> str:
    """Return what the system said, below all that libraries made of it; empty when no message."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return ""


def login_of(registry: str) -> tuple[str, str] | None:
    """Return the user and the password that `docker login` keeps for a registry, or None.

    Raises ImageError.
    """
    _check_sdk()
    from docker import auth

    with docker_errors(f"cannot read the login of {registry}"):
        found = auth.load_config().resolve_authconfig(registry) or {}
    values = {name.lower(): value for name, value in found.items()}
    user, password = values.get("username"), values.get("password")
    return (user, password) if user and password else None


def _check_sdk() -> None:
    if find_spec("docker") is None:
        raise ImageError("the Docker SDK for Python is not installed", hint=install_command("docker"))


class BuildScreen(Protocol):
    """Screen of a build, pull or push."""

    def step(self, name: str, text: str) -> None:
        """Show a line that stays."""

    def gauge(self, text: str) -> None:
        """Show how far it is: overwritten by the next."""


def follow(messages: Iterable[Mapping[str, Any]], screen: BuildScreen, *, name: str, doing: str) -> list[Any]:
    """Show the messages as steps of that name; return the daemon's other records.

    Raises ImageError with the daemon's reason, and the last lines that the build printed.
    """
    layers: dict[str, tuple[bool, int, int]] = {}
    records, printed = [], deque[str](maxlen=12)
    budget = ExchangeBudget(caps.EXCHANGES["docker"], now=time.monotonic, sender="Docker", error=ImageError)
    for message in messages:
        # The daemon answers 200 at once: that a pull or a build failed stands in its stream only.
        if "error" in message:
            raise image_error(doing, str(message["error"]), printed)
        layer, known = str(message.get("id") or ""), len(layers)
        if layer and "progressDetail" in message:
            status, detail = str(message.get("status")), message["progressDetail"] or {}
            _, *amounts = layers.get(layer, (False, 0, 0))
            if status in ("Downloading", "Pushing") and detail.get("total"):
                amounts = [int(detail.get("current", 0)), int(detail["total"])]
            layers[layer] = (status.startswith(_AT_REST), amounts[0], amounts[1])
            ready, done, size = map(sum, zip(*layers.values(), strict=True))
            amount = f", {done / 1e6:.0f} of {size / 1e6:.0f} MB" if size else ""
            screen.gauge(f"{name}: {ready} of {len(layers)} layers{amount}")
        if "aux" in message:
            records.append(message["aux"])
        stays = "aux" in message or len(layers) > known
        budget.spend(items=1, memory=len(str(message)) if stays else 0)
        for line in _STYLE.sub("", str(message.get("stream", ""))).splitlines():
            _show(line.strip(), screen, name, printed)
    return records


def _show(line: str, screen: BuildScreen, name: str, printed: deque[str]) -> None:
    step = _STEP.match(line)
    if step and not step[2].startswith("ARG "):
        screen.step(name, f"{step[1]} {' '.join(step[2].split())}"[:100])
    elif line == "---> Using cache":
        screen.gauge(f"{name}: unchanged")
    elif line and not step and not line.startswith(("--->", "Removing intermediate container")):
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


def push(client: DockerClient, image: ImageReference, screen: BuildScreen) -> ImageReference:
    """Push the image; return it as the registry has it now, by its digest. Raises ImageError."""
    doing = f"cannot push {image}"
    with docker_errors(doing):
        messages = client.api.push(image.name, tag=image.tag, stream=True, decode=True)
        records = follow(messages, screen, name="push", doing=doing)
    digest = next((record["Digest"] for record in records if record.get("Digest")), "")
    if not digest:
        raise ImageError(f"{doing}: the registry named no digest")
    pushed = replace(image, digest=digest)
    screen.step("push", str(pushed))
    return pushed


@dataclass(frozen=True, kw_only=True)
class LocalImage:
    """One that was built or pulled here."""

    reference: str
    """With a tag, or empty."""
    id: str
    digests: tuple[str, ...]
    """Digests in the registries that have it."""
    variant: str
    created_at: float
    """Epoch seconds."""


def local_images(client: DockerClient) -> list[LocalImage]:
    """List our images that Docker has here, the newest first. Raises ImageError."""
    with docker_errors("cannot list the images"):
        # One answer: an image that is removed meanwhile is in it or is not.
        rows = client.api.images(filters={"label": f"{LABEL}variant"})
    # An image without a name is listed once, too.
    named = [(row, [tag for tag in row.get("RepoTags") or [] if tag != "<none>:<none>"]) for row in rows]
    images = [_local(row, reference) for row, tags in named for reference in tags or [""]]
    return sorted(images, key=lambda image: (image.created_at, image.reference), reverse=True)


def newest_local_image(client: DockerClient, variant: str, lock: Lock) -> LocalImage | None:
    """Return the newest image of a variant that was built here; None: there is none.

    Raises ImageError when it goes by the name of a locked image and is another.
    """
    image = next((image for image in local_images(client) if image.variant == variant), None)
    locked = lock.images.get(variant)
    if image is None or locked is None or image.reference != locked.name:
        return image
    if locked.digest not in image.digests:
        check_digest(locked, image.id, hint=f"docker pull {locked.name}")
    return image


def _local(row: dict[str, Any], reference: str) -> LocalImage:
    labels = row.get("Labels") or {}
    digests = {digest.rpartition("@")[2] for digest in row.get("RepoDigests") or []}
    return LocalImage(
        reference=reference,
        id=row["Id"],
        digests=tuple(sorted({*digests, row["Id"]})),
        variant=labels[f"{LABEL}variant"],
        created_at=float(row.get("Created", 0)),
    )
