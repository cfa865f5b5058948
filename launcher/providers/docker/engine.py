"""The Docker daemon: what is asked and ordered of it, in our own nouns."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from vastrun.launcher.core.errors import GoneError, ProviderError
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.budget import ExchangeBudget
from vastrun.launcher.providers.counted import count_answers
from vastrun.launcher.providers.docker.answers import asking, ordering, sdk
from vastrun.launcher.providers.docker.rows import Container, DockerHost, DockerNetwork

if TYPE_CHECKING:
    from docker import APIClient, DockerClient

_TIMEOUT_S = 60.0
"""For one answer: the first start from a large image takes long."""
_LOG_LINES = 1000


class Engine:
    """The daemon that `DOCKER_HOST` names, or this computer's.

    Questions raise UnreachableError while it does not answer. Orders raise ProviderError when they are
    refused, UncertainError when an unknown cause became of them.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)
        self.host = _host(environ.get("DOCKER_HOST", ""))
        """The other computer that it runs on; empty: it is this one."""

    def docker_host(self) -> DockerHost:
        """Describe the computer that the daemon runs on."""
        with asking():
            return DockerHost.of(self._api.info())

    def has_image(self, name: str) -> bool:
        """Tell whether a container can be made of this image at once."""
        with suppress(GoneError), asking():
            self.client.images.get(name)
            return True
        return False

    def containers(self, label: str) -> list[Container]:
        """List those with this label, whatever their state."""
        with asking():
            rows = self._api.containers(all=True, filters={"label": [label]})
            return [Container.listed(row) for row in rows]

    def container(self, name: str) -> Container | None:
        """Inspect the container of that name; None where there is none."""
        with suppress(GoneError), asking():
            return Container.inspected(self._api.inspect_container(name))
        return None

    def log(self, name: str) -> str:
        """Return what the container printed last. Raises GoneError, too."""
        with asking():
            printed: bytes = self._api.logs(name, tail=_LOG_LINES)
            return printed.decode("utf-8", "replace")

    def create(self, name: str, config: Mapping[str, Any], limits: Mapping[str, Any]) -> None:
        """Create a container of that name. `config` and `limits`: as the SDK names them."""
        with ordering():
            host_config = self._api.create_host_config(**limits)
            self._api.create_container(name=name, host_config=host_config, **config)

    def networks(self, label: str) -> list[DockerNetwork]:
        """List those with this label."""
        with asking():
            return [DockerNetwork.of(row) for row in self._api.networks(filters={"label": [label]})]

    def make_network(self, name: str, labels: Mapping[str, str]) -> None:
        """Create a network of that name, unless there is one."""
        with ordering():
            # Docker's own filter takes a part of a name, too; and it makes a second network of the same name.
            if all(row["Name"] != name for row in self._api.networks(filters={"name": [name]})):
                self._api.create_network(name, driver="bridge", labels=dict(labels))

    def remove_network(self, name: str) -> None:
        """Remove the network; one that has containers stays, and one that is gone is none of our business."""
        with suppress(GoneError):
            try:
                with asking():
                    self._api.remove_network(name)
            except ProviderError as error:
                if "active endpoints" not in str(error):
                    raise

    def start(self, name: str) -> None:
        """Start the container."""
        with ordering():
            self._api.start(name)

    def remove(self, name: str) -> None:
        """Remove the container and its volumes; one that is being removed already is none of our business."""
        try:
            with asking():
                self._api.remove_container(name, v=True, force=True)
        except GoneError:
            return
        except ProviderError as error:
            if "already in progress" not in str(error):
                raise

    @cached_property
    def client(self) -> DockerClient:
        """The SDK's own. Raises its errors."""
        settings = sdk().utils.kwargs_from_env(environment=self._environ)
        client: DockerClient = sdk().DockerClient(timeout=_TIMEOUT_S, **settings)
        count_answers(client.api, _budget)
        return client

    @property
    def _api(self) -> APIClient:
        return self.client.api


def _budget() -> ExchangeBudget:
    from requests import RequestException  # as when Docker does not answer

    return ExchangeBudget(
        caps.EXCHANGES["docker answer"], now=time.monotonic, sender="it", error=RequestException
    )


def _host(address: str) -> str:
    url = urlsplit(address)
    return (url.hostname or "") if url.scheme in ("tcp", "http", "https", "ssh") else ""
