"""Client of the Docker daemon: queries and orders in vastrun's types."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from vastrun.launcher.core.errors import GoneError, ProviderError
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.caps import ExchangeBudget
from vastrun.launcher.providers.docker.errors import map_order_errors, map_query_errors, sdk
from vastrun.launcher.providers.docker.rows import Container, DockerHost, DockerNetwork
from vastrun.launcher.providers.response_limits import limit_responses

if TYPE_CHECKING:
    from docker import APIClient, DockerClient

_TIMEOUT_S = 60.0
"""Seconds for one response: the first start from a large image takes long."""
_LOG_LINES = 1000


class Engine:
    """The daemon on DOCKER_HOST or this computer.

    Queries raise UnreachableError without a response. Orders raise ProviderError when they are rejected, and
    UncertainError when their result is unknown.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)
        self.host = _host(environ.get("DOCKER_HOST", ""))
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
            printed: bytes = self._api.logs(name, tail=_LOG_LINES)
            return printed.decode("utf-8", "replace")

    def create(self, name: str, config: Mapping[str, Any], limits: Mapping[str, Any]) -> None:
        """Create a container of that name. `config` and `limits`: arguments of the SDK."""
        with map_order_errors():
            host_config = self._api.create_host_config(**limits)
            self._api.create_container(name=name, host_config=host_config, **config)

    def networks(self, label: str) -> list[DockerNetwork]:
        """List the networks with this label."""
        with map_query_errors():
            return [DockerNetwork.from_row(row) for row in self._api.networks(filters={"label": [label]})]

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


def _host(address: str) -> str:
    url = urlsplit(address)
    return (url.hostname or "") if url.scheme in ("tcp", "http", "https", "ssh") else ""
