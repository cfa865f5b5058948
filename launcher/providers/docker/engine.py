"""Client of the Docker daemon: queries and orders in vastrun's types, failures as vastrun's errors."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from vastrun.launcher.core import Cause
from vastrun.launcher.core.errors import GoneError, ProviderError, UncertainError, UnreachableError
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.caps import ExchangeBudget, limit_responses
from vastrun.launcher.image.daemon import reason_of
from vastrun.launcher.package_files import install_command
from vastrun.launcher.providers.docker.containers import Container, DockerHost

if TYPE_CHECKING:
    from docker import APIClient, DockerClient
    from docker.errors import APIError

_TIMEOUT_S = 60.0
"""Seconds for one response: the first start from a large image takes long."""
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


class Engine:
    """The daemon on DOCKER_HOST or this computer.

    Queries raise UnreachableError without a response. Orders raise ProviderError when they are rejected, and
    UncertainError when their result is unknown.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)
        url = urlsplit(environ.get("DOCKER_HOST", ""))
        self.host = (url.hostname or "") if url.scheme in ("tcp", "http", "https", "ssh") else ""
        """Host name of the daemon; empty for this computer."""

    def docker_host(self) -> DockerHost:
        """Return facts about the daemon's computer."""
        with map_query_errors():
            return DockerHost.from_row(self._api.info())

    def has_image(self, name: str) -> bool:
        """Return whether the daemon has the image."""
        with suppress(GoneError), map_query_errors():
            self.client.images.get(name)
            return True
        return False

    def containers(self, label: str) -> list[Container]:
        """List the containers with this label, in any state."""
        with map_query_errors():
            rows = self._api.containers(all=True, filters={"label": [label]})
            return [Container.from_list(row) for row in rows]

    def container(self, name: str) -> Container | None:
        """Inspect the container of that name; None when it does not exist."""
        with suppress(GoneError), map_query_errors():
            return Container.from_inspect(self._api.inspect_container(name))
        return None

    def log(self, name: str) -> str:
        """Return the end of the container's log. Raises GoneError, too."""
        with map_query_errors():
            printed: bytes = self._api.logs(name, tail=1000)
            return printed.decode("utf-8", "replace")

    def create(self, name: str, config: Mapping[str, Any], limits: Mapping[str, Any]) -> None:
        """Create a container of that name. `config` and `limits`: arguments of the SDK."""
        with map_order_errors():
            host_config = self._api.create_host_config(**limits)
            self._api.create_container(name=name, host_config=host_config, **config)

    def networks(self, label: str) -> dict[str, float]:
        """Return the networks with this label: by name, when each was created, in epoch seconds."""
        with map_query_errors():
            rows = self._api.networks(filters={"label": [label]})
            times = {row["Name"]: datetime.fromisoformat(f"{row['Created'][:19]}Z") for row in rows}
            return {name: created.timestamp() for name, created in times.items()}

    def create_network(self, name: str, labels: Mapping[str, str]) -> None:
        """Create a network of that name unless it exists."""
        with map_order_errors():
            # Docker's filter matches parts of names, and Docker creates a second network of the same name.
            if all(row["Name"] != name for row in self._api.networks(filters={"name": [name]})):
                self._api.create_network(name, driver="bridge", labels=dict(labels))

    def remove_network(self, name: str) -> None:
        """Remove the network unless it has containers; a missing network is not an error."""
        with suppress(GoneError):
            try:
                with map_query_errors():
                    self._api.remove_network(name)
            except ProviderError as error:
                if "active endpoints" not in str(error):
                    raise

    def start(self, name: str) -> None:
        """Start the container."""
        with map_order_errors():
            self._api.start(name)

    def remove(self, name: str) -> None:
        """Remove the container and its volumes; a container that is being removed already is not an error."""
        try:
            with map_query_errors():
                self._api.remove_container(name, v=True, force=True)
        except GoneError:
            return
        except ProviderError as error:
            if "already in progress" not in str(error):
                raise

    @cached_property
    def client(self) -> DockerClient:
        """Client of the SDK. Raises the SDK's errors."""
        settings = sdk().utils.kwargs_from_env(environment=self._environ)
        client: DockerClient = sdk().DockerClient(timeout=_TIMEOUT_S, **settings)
        limit_responses(client.api, _budget)
        return client

    @property
    def _api(self) -> APIClient:
        return self.client.api


def _budget() -> ExchangeBudget:
    # The error of a missing response, so that map_query_errors treats an oversized one alike.
    from requests import RequestException

    return ExchangeBudget(
        caps.EXCHANGES["docker answer"], now=time.monotonic, sender="it", error=RequestException
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
        text = _explanation(error)
        fits = (row for row in _REJECTIONS if row[0].lower() in text.lower())
        _, cause, hint = next(fits, ("", Cause.PROVIDER, ""))
        raise ProviderError(f"Docker rejected the order: {text}", hint=hint, cause=cause) from error
    except _no_response_errors() as error:
        raise UncertainError(f"Docker did not answer: {_reason(error)}") from error


def _no_response_errors() -> tuple[type[Exception], ...]:
    """Return the errors that the SDK raises without a response; with DOCKER_HOST=ssh:// also paramiko's."""
    from paramiko import SSHException

    return OSError, SSHException, sdk().errors.DockerException


def _unreachable(why: str) -> UnreachableError:
    """Return the error for a daemon that does not respond, with a hint for its usual reasons."""
    hint = (
        "start Docker; if `docker ps` works: "
        "export DOCKER_HOST=$(docker context inspect --format '{{.Endpoints.docker.Host}}')"
    )
    if "permission denied" in why.lower():
        hint = "your user has no access to Docker: sudo usermod -aG docker $USER, then log in again"
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
    # Fingerprints of host keys say nothing about the end.
    lines = [line.strip() for line in printed.splitlines() if "SHA256:" not in line]
    text = next((line[-200:] for line in reversed(lines) if line), "")
    return ProviderError(f"container {container.name} {how}{f': {text}' if text else ''}", cause=cause)
