"""Docker's daemon, reached through its SDK; every failure says what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from vastrun.launcher.core.errors import ImageError
from vastrun.launcher.package_files import install_command

if TYPE_CHECKING:
    from docker import DockerClient

_TIMEOUT_S = 120
_INSTALL = (
    "install Docker, or export DOCKER_HOST=ssh://user@host where there is one; where `docker ps` works: "
    "export DOCKER_HOST=$(docker context inspect --format '{{.Endpoints.docker.Host}}')"
)
# What Docker, its SDK or a registry writes, in plain words, and what to do. The first that fits counts.
_EXPLANATIONS: Sequence[tuple[str, str, str]] = (
    (r"FileNotFoundError|No such file or directory: .*sock", "there is no Docker on this computer", _INSTALL),
    (
        r"PermissionError|permission denied .*docker daemon",
        "you may not use Docker",
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
        "the registry refuses",
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


def connect() -> DockerClient:
    """Connect to the daemon of DOCKER_HOST, or this computer's. Raises ImageError."""
    _check_sdk()
    import docker

    with docker_errors("cannot reach Docker"):
        client = docker.from_env(timeout=_TIMEOUT_S)
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
