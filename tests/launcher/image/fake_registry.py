"""A registry that holds what a test puts there, and who looks at the steps of a command."""

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Self

from tests.http_servers import QuietHandler, serving

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
USER, PASSWORD = "heron", "s3cret"


class FakeRegistry:
    """Use it in a `with`. With `asks`, `Bearer` or `Basic`, only whoever logs in gets something."""

    def __init__(self, asks: str = "") -> None:
        self.asks = asks
        self.realm = ""
        """Where it sends for a token; empty: to itself."""
        self.token = b'{"token": "t0ken"}'
        """What who logs in is answered."""
        self.refuses = 0
        """A status to answer everything with."""
        self.things: dict[str, tuple[str, bytes]] = {}
        """By path: its media type and its bytes."""
        self.moved_to = ""
        """Where blobs are said to lie."""
        self.asked: list[tuple[str, str]] = []
        """Path and authorization of each request."""

    def __enter__(self) -> Self:
        self._served = serving(type("Handler", (_Handler,), {"fake_registry": self}))
        self.host = self._served.__enter__().removeprefix("http://")
        return self

    def __exit__(self, *_: object) -> None:
        self._served.__exit__(None, None, None)

    def put(
        self,
        name: str,
        *,
        labels: Mapping[str, str] | None = None,
        architecture: str = "amd64",
        index: bool = False,
    ) -> str:
        """An image of two layers, 150 MB, as `repository:tag`; the digest of what the tag names."""
        repository, _, tag = name.partition(":")
        config = json.dumps({"architecture": architecture, "config": {"Labels": labels}}).encode()
        layers = [{"digest": digest(b"1"), "size": 100_000_000}, {"digest": digest(b"2"), "size": 50_000_000}]
        manifest = {"mediaType": MANIFEST, "config": {"digest": digest(config)}, "layers": layers}
        self.things[f"/v2/{repository}/blobs/{digest(config)}"] = ("application/octet-stream", config)
        found = self._put(repository, tag, MANIFEST, manifest)
        if index:
            entry = {"digest": found, "platform": {"os": "linux", "architecture": architecture}}
            found = self._put(repository, tag, INDEX, {"mediaType": INDEX, "manifests": [entry]})
        return found

    def _put(self, repository: str, tag: str, kind: str, content: Mapping[str, Any]) -> str:
        data = json.dumps(content).encode()
        for name in (tag, digest(data)):
            self.things[f"/v2/{repository}/manifests/{name}"] = (kind, data)
        return digest(data)


class _Handler(QuietHandler):
    fake_registry: FakeRegistry

    def do_GET(self) -> None:
        fake_registry = self.fake_registry
        path, _, query = self.path.partition("?")
        given = self.headers.get("Authorization", "")
        fake_registry.asked.append((path, given))
        basic = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if path == "/token" and given == basic and "service=shop" in query:
            self._say(200, "application/json", fake_registry.token)
        elif path == "/token" or fake_registry.refuses:
            self._say(fake_registry.refuses or 401, "application/json", b"{}")
        elif fake_registry.asks and given != {"Basic": basic, "Bearer": "Bearer t0ken"}[fake_registry.asks]:
            realm = f'realm="{fake_registry.realm or f"http://{fake_registry.host}/token"}",service="shop",scope="pull"'
            self._say(401, "application/json", b"{}", {"WWW-Authenticate": f"{fake_registry.asks} {realm}"})
        elif path not in fake_registry.things:
            self._say(404, "application/json", b"{}")
        elif "/blobs/" in path and fake_registry.moved_to:
            self._say(307, "text/plain", b"", {"Location": f"http://{fake_registry.moved_to}{path}"})
        else:
            self._say(200, *fake_registry.things[path])

    def _say(self, status: int, kind: str, content: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.answer(status, content, **{"Content-Type": kind, **(headers or {})})


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class Watcher:
    """The Screen of a test."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, str]] = []
        self.gauges: list[str] = []

    def step(self, name: str, text: str) -> None:
        self.steps.append((name, text))

    def gauge(self, text: str) -> None:
        self.gauges.append(text)
