"""Mapping of the Docker daemon's errors to vastrun's errors and causes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

from vastrun.launcher.core import Cause
from vastrun.launcher.core.errors import GoneError, ProviderError, UncertainError, UnreachableError
from vastrun.launcher.image.daemon import reason_of
from vastrun.launcher.package_files import install_command
from vastrun.launcher.providers.docker.rows import Container

if TYPE_CHECKING:
    from docker.errors import APIError

_TOOLKIT = "install the NVIDIA Container Toolkit; `docker run --gpus all IMAGE nvidia-smi` must work"
_REJECTIONS = (
    # text                                cause             hint
    ("No such image", Cause.USER_ERROR, "docker pull IMAGE, or vastrun image build"),
    ("executable file not found", Cause.USER_ERROR, "check image: it needs bash"),
    ("exec format error", Cause.USER_ERROR, "check image: it was built for another processor architecture"),
    ("could not select device driver", Cause.HOST, _TOOLKIT),
    ("nvidia-container-cli", Cause.HOST, _TOOLKIT),
    ("no space left on device", Cause.DISK, "docker system prune"),
)


def sdk() -> ModuleType:
    """Import the package `docker`. Raises ProviderError when it is not installed."""
    try:
        import docker
    except ImportError as error:
        hint = install_command("docker")
        raise ProviderError("Python's package `docker` is not installed", hint=hint) from error
    module: ModuleType = docker
    return module


@contextmanager
def map_query_errors() -> Iterator[None]:
    """Map errors of a query: GoneError for a missing object, UnreachableError without a response."""
    errors = sdk().errors
    try:
        yield
    except errors.NotFound as error:
        raise GoneError(f"Docker reports: {_explanation(error)}") from error
    except errors.APIError as error:
        # A server error is not an answer: the object may well exist.
        if error.is_server_error():
            raise _unreachable(_explanation(error)) from error
        raise ProviderError(f"Docker rejected the request: {_explanation(error)}") from error
    except _no_response_errors() as error:
        raise _unreachable(_reason(error)) from error
    except (KeyError, TypeError, ValueError) as error:
        raise _unreachable(f"malformed response ({error!r})") from error


@contextmanager
def map_order_errors() -> Iterator[None]:
    """Map errors of an order: ProviderError for a rejection, UncertainError without a response."""
    errors = sdk().errors
    try:
        yield
    except errors.APIError as error:
        raise _rejection(_explanation(error)) from error
    except _no_response_errors() as error:
        raise UncertainError(f"Docker did not answer: {_reason(error)}") from error


def _no_response_errors() -> tuple[type[Exception], ...]:
    """Return the errors that the SDK raises without a response; with DOCKER_HOST=ssh:// also paramiko's."""
    from paramiko import SSHException

    return OSError, SSHException, sdk().errors.DockerException


def _rejection(text: str) -> ProviderError:
    fits = (row for row in _REJECTIONS if row[0].lower() in text.lower())
    _, cause, hint = next(fits, ("", Cause.PROVIDER, ""))
    return ProviderError(f"Docker rejected the order: {text}", hint=hint, cause=cause)


def _unreachable(why: str) -> UnreachableError:
    """Return the error for a daemon that does not respond, with a hint for its usual reasons."""
    hint = (
        "start Docker; if `docker ps` works: "
        "export DOCKER_HOST=$(docker context inspect --format '{{.Endpoints.docker.Host}}')"
    )
    if "permission denied" in why.lower():
        hint = "this user may not use Docker: sudo usermod -aG docker $USER, then log in again"
    return UnreachableError(f"Docker does not answer: {why}", hint=hint, cause=Cause.PROVIDER)


def _explanation(error: APIError) -> str:
    return " ".join(str(error.explanation or error).split())[-300:]


def _reason(error: BaseException) -> str:
    return reason_of(error) or " ".join(str(error).split())[-200:]


ENDED = ("exited", "dead")
_EXIT_CODES = {
    0: (Cause.LOST, "exited with code 0"),
    # 78 is init.sh's exit code; 137 and 143 are SIGKILL and SIGTERM, which only others send.
    78: (Cause.USER_ERROR, "cannot be used: its image has no SSH server, and none can be installed"),
    137: (Cause.LOST, "was killed, but not by this launcher"),
    143: (Cause.LOST, "was stopped, but not by this launcher"),
}


def end_error(container: Container, printed: str) -> ProviderError:
    """Return an error that says how and why the container ended. `printed`: its log."""
    cause, how = _EXIT_CODES.get(
        container.exit_code, (Cause.HOST, f"ended with exit code {container.exit_code}")
    )
    if container.exit_code == 137 and container.out_of_memory:
        cause, how = Cause.OUT_OF_MEMORY, "was killed by the kernel: it exceeded its memory limit"
    text = _last_line(printed)
    return ProviderError(f"container {container.name} {how}{f': {text}' if text else ''}", cause=cause)


def _last_line(printed: str) -> str:
    """Return the last line of the log, without fingerprints of host keys."""
    lines = [line.strip() for line in printed.splitlines() if "SHA256:" not in line]
    return next((line[-200:] for line in reversed(lines) if line), "")
