"""What the daemon's refusals and its silence mean: one table from its words to our errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

from vastrun.launcher.core import Cause
from vastrun.launcher.core.errors import GoneError, ProviderError, UncertainError, UnreachableError
from vastrun.launcher.image.daemon import reason_of
from vastrun.launcher.providers.docker.rows import Container
from vastrun.launcher.shipped import install_command

if TYPE_CHECKING:
    from docker.errors import APIError

_TOOLKIT = "install the NVIDIA Container Toolkit; `docker run --gpus all IMAGE nvidia-smi` must work"
_REFUSALS = (
    # it says                             cause             what to try
    ("No such image", Cause.USER_ERROR, "docker pull IMAGE, or vastrun image build"),
    ("executable file not found", Cause.USER_ERROR, "check image: it needs bash"),
    ("exec format error", Cause.USER_ERROR, "check image: it is made for another kind of processor"),
    ("could not select device driver", Cause.HOST, _TOOLKIT),
    ("nvidia-container-cli", Cause.HOST, _TOOLKIT),
    ("no space left on device", Cause.DISK, "docker system prune"),
)


def sdk() -> ModuleType:
    """Import the package `docker`. Raises ProviderError where it is not installed."""
    try:
        import docker
    except ImportError as error:
        hint = install_command("docker")
        raise ProviderError("Python's package `docker` is not installed", hint=hint) from error
    module: ModuleType = docker
    return module


@contextmanager
def asking() -> Iterator[None]:
    """Map errors of a question: GoneError when it is about nothing, UnreachableError without an answer."""
    errors = sdk().errors
    try:
        yield
    except errors.NotFound as error:
        raise GoneError(f"Docker says: {_said(error)}") from error
    except errors.APIError as error:
        # A daemon that stumbles has answered nothing: what was asked about may well be there.
        if error.is_server_error():
            raise _silent(_said(error)) from error
        raise ProviderError(f"Docker refused: {_said(error)}") from error
    except _silences() as error:
        raise _silent(_reason(error)) from error
    except (KeyError, TypeError, ValueError) as error:
        raise _silent(f"its answer is not valid ({error!r})") from error


@contextmanager
def ordering() -> Iterator[None]:
    """Map errors of an order: ProviderError when it is refused, UncertainError when it is not answered."""
    errors = sdk().errors
    try:
        yield
    except errors.APIError as error:
        raise _refusal(_said(error)) from error
    except _silences() as error:
        raise UncertainError(f"Docker did not answer: {_reason(error)}") from error


def _silences() -> tuple[type[Exception], ...]:
    """What the SDK raises when nobody answers; it goes through paramiko where DOCKER_HOST says ssh://."""
    from paramiko import SSHException

    return OSError, SSHException, sdk().errors.DockerException


def _refusal(said: str) -> ProviderError:
    fits = (row for row in _REFUSALS if row[0].lower() in said.lower())
    _, cause, hint = next(fits, ("", Cause.PROVIDER, ""))
    return ProviderError(f"Docker refused: {said}", hint=hint, cause=cause)


def _silent(why: str) -> UnreachableError:
    """The daemon cannot be asked: what it would have said is not known."""
    hint = (
        "start Docker; where `docker ps` works: "
        "export DOCKER_HOST=$(docker context inspect --format '{{.Endpoints.docker.Host}}')"
    )
    if "permission denied" in why.lower():
        hint = "this user may not use Docker: sudo usermod -aG docker $USER, then log in again"
    return UnreachableError(f"Docker does not answer: {why}", hint=hint, cause=Cause.PROVIDER)


def _said(error: APIError) -> str:
    return " ".join(str(error.explanation or error).split())[-300:]


def _reason(error: BaseException) -> str:
    return reason_of(error) or " ".join(str(error).split())[-200:]


ENDED = ("exited", "dead")
_ENDS = {
    0: (Cause.LOST, "ended by itself"),
    78: (Cause.USER_ERROR, "cannot be used: its image has no SSH server, and none can be installed"),
    137: (Cause.LOST, "was killed, and not by this launcher"),
    143: (Cause.LOST, "was stopped, and not by this launcher"),
}


def end_error(container: Container, printed: str) -> ProviderError:
    """Return how the container ended, as an error with its cause. `printed`: its log."""
    cause, how = _ENDS.get(container.exit_code, (Cause.HOST, f"ended with exit code {container.exit_code}"))
    if container.exit_code == 137 and container.out_of_memory:
        cause, how = Cause.OUT_OF_MEMORY, "was killed by the kernel: it used more memory than it may"
    said = _last_words(printed)
    return ProviderError(f"container {container.name} {how}{f': {said}' if said else ''}", cause=cause)


def _last_words(printed: str) -> str:
    """The last line that tells more than its host keys."""
    lines = [line.strip() for line in printed.splitlines() if "SHA256:" not in line]
    return next((line[-200:] for line in reversed(lines) if line), "")
