"""A registry's HTTP API: what a tag names now, how large it is, for which machines, with which labels."""

from __future__ import annotations

import base64
import hashlib
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Annotated, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request

from vastrun.contract.limited_http import limited_opener
from vastrun.contract.records import MaxLength, Pattern, Range, RecordError, Text, read_json
from vastrun.launcher.core.errors import ImageError
from vastrun.launcher.core.image_ref import HUB, ImageReference
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.caps import ExchangeBudget
from vastrun.launcher.image.lock import ARCHITECTURE

_Answer = TypeVar("_Answer")
Login = Callable[[str], tuple[str, str] | None]
"""The user and the password for a registry; None: it is asked as anybody."""

_MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_LOOPBACK = re.compile(r"(localhost|127\.[\d.]+)(:\d+)?")
_CHALLENGE = re.compile(r'(\w{1,40})="([^"]*)"')

_Digest = Annotated[str, Pattern("sha256:[0-9a-f]{64}")]
_Words = Annotated[str, Text(caps.REGISTRY_CHARACTERS)]
_Header = Annotated[str, Pattern("[!-~]*"), MaxLength(caps.REGISTRY_CHARACTERS)]


@dataclass(frozen=True, kw_only=True)
class _Layer:
    size: Annotated[int, Range(0, caps.LAYER_BYTES)]


@dataclass(frozen=True, kw_only=True)
class _Platform:
    architecture: _Words | None = None
    os: _Words | None = None


@dataclass(frozen=True, kw_only=True)
class _Blob:
    digest: _Digest
    platform: _Platform | None = None


@dataclass(frozen=True, kw_only=True)
class _Manifest:
    config: _Blob
    layers: Annotated[tuple[_Layer, ...], MaxLength(caps.REGISTRY_ENTRIES)]


@dataclass(frozen=True, kw_only=True)
class _Index:
    manifests: Annotated[tuple[_Blob, ...], MaxLength(caps.REGISTRY_ENTRIES)] | None = None


@dataclass(frozen=True, kw_only=True)
class _Settings:
    Labels: Annotated[Mapping[str, _Words], MaxLength(caps.REGISTRY_LABELS)] | None = None


@dataclass(frozen=True, kw_only=True)
class _Config:
    architecture: _Words | None = None
    config: _Settings | None = None


@dataclass(frozen=True, kw_only=True)
class _Token:
    token: _Header | None = None
    access_token: _Header | None = None


@dataclass(frozen=True, kw_only=True)
class PublishedImage:
    """An image as a registry has it."""

    reference: ImageReference
    """With its digest."""
    size_mb: int
    """Compressed size of its layers, in MB."""
    labels: Mapping[str, str]


class Registry:
    """Reads only."""

    def __init__(self, login: Login, now: Callable[[], float] = time.monotonic) -> None:
        """`now`: for the time that all answers of one look-up may take together."""
        self._login, self._now = login, now

    def look_up(self, reference: ImageReference) -> PublishedImage:
        """Return what the reference names now; its tag counts, not its digest. Raises ImageError."""
        budget = ExchangeBudget(
            caps.EXCHANGES["registry"], now=self._now, sender=f"the registry of {reference}", error=ImageError
        )
        repository = _Repository(reference, self._login, budget)
        content, digest = repository.manifest(reference.tag or reference.digest or "latest")
        # The index has the digest that a pull by tag shows; what the image holds stands one level below.
        index = repository.read(_Index, content)
        if index.manifests is not None:
            platforms = {
                entry.platform.architecture or "?": entry.digest
                for entry in index.manifests
                if entry.platform is not None and entry.platform.os == "linux"
            }
            if ARCHITECTURE not in platforms:
                raise _wrong_architecture(reference, " and ".join(sorted(platforms)) or "nothing known")
            content, _ = repository.manifest(platforms[ARCHITECTURE])
        manifest = repository.read(_Manifest, content)
        config = repository.read(_Config, repository.blob(manifest.config.digest))
        if config.architecture != ARCHITECTURE:
            raise _wrong_architecture(reference, config.architecture or "nothing known")
        return PublishedImage(
            reference=ImageReference.of(f"{reference.tagged}@{digest}"),
            size_mb=round(sum(layer.size for layer in manifest.layers) / 1e6),
            labels=(config.config and config.config.Labels) or {},
        )


class _Repository:
    """One repository, with the token that it asks for."""

    def __init__(self, reference: ImageReference, login: Login, budget: ExchangeBudget) -> None:
        host = "registry-1.docker.io" if reference.registry == HUB else reference.registry
        path = reference.repository
        if reference.registry == HUB and "/" not in path:
            path = f"library/{path}"
        # As Docker does: a registry on this computer needs no certificate.
        scheme = "http" if _LOOPBACK.fullmatch(host) else "https"
        self._url = f"{scheme}://{host}/v2/{path}"
        self._reference, self._login, self._budget = reference, login, budget
        self._authorization = ""

    def read(self, kind: type[_Answer], content: bytes) -> _Answer:
        """Return an answer as a record. Raises ImageError."""
        try:
            answer: _Answer = read_json(kind, content)
        except RecordError as error:
            text = f"the registry of {self._reference} sends a malformed answer: {error}"
            raise ImageError(text, hint="try again") from error
        return answer

    def manifest(self, name: str) -> tuple[bytes, str]:
        """Return a manifest or an index, and the digest of its bytes."""
        content = self._get(f"{self._url}/manifests/{name}", accept=_MANIFESTS)
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        if name.startswith("sha256:") and name != digest:
            raise ImageError(f"{self._reference}: the registry answers {name} with {digest}")
        return content, digest

    def blob(self, digest: str) -> bytes:
        """Return a blob, as its digest says."""
        content = self._get(f"{self._url}/blobs/{digest}", accept=("*/*",))
        if f"sha256:{hashlib.sha256(content).hexdigest()}" != digest:
            raise ImageError(f"{self._reference}: the registry's {digest} is damaged")
        return content

    def _get(self, url: str, accept: tuple[str, ...]) -> bytes:
        try:
            return self._ask(url, accept)
        except HTTPError as error:
            if error.code != 401 or self._authorization:
                raise self._error(error) from error
            self._authorize(error.headers.get("WWW-Authenticate", ""))
        try:
            return self._ask(url, accept)
        except HTTPError as error:
            raise self._error(error) from error

    def _ask(self, url: str, accept: tuple[str, ...]) -> bytes:
        """Send one request. Raises HTTPError for the caller to interpret; ImageError without a response."""
        request = Request(url, headers={"Accept": ", ".join(accept)})
        if self._authorization:
            # Not sent along when the registry points to another server.
            request.add_unredirected_header("Authorization", self._authorization)
        self._budget.spend(items=1)
        try:
            left_s = self._budget.remaining_s()
            with limited_opener(left_s) as opener, opener.open(request, timeout=min(left_s, 30.0)) as answer:
                chunks = iter(lambda: answer.read1(1 << 16), b"")
                return b"".join(self._budget.receive(chunks))
        except HTTPError:
            raise
        except (URLError, OSError, HTTPException, ValueError) as error:
            why = getattr(error, "reason", None) or error
            raise ImageError(f"the registry of {self._reference} does not answer: {why}") from error

    def _authorize(self, challenge: str) -> None:
        login = self._login(self._reference.registry)
        basic = "" if login is None else "Basic " + base64.b64encode(":".join(login).encode()).decode()
        if not challenge.lower().startswith("bearer"):
            self._authorization = basic
            return
        facts = dict(_CHALLENGE.findall(challenge))
        realm = facts.get("realm", "")
        # The registry names where the password goes: never in the open, and never to a file.
        if not self._may_ask(realm):
            raise ImageError(
                f"the registry of {self._reference} asks for a token from {realm[:80]!r}: refused"
            )
        query = urlencode({name: facts[name] for name in ("service", "scope") if name in facts})
        self._authorization = basic
        try:
            answer = self.read(_Token, self._ask(f"{realm}?{query}", ("application/json",)))
        except HTTPError as error:
            raise self._error(error) from error
        token = answer.token or answer.access_token
        if not token:
            raise ImageError(f"the registry of {self._reference} sends no token", hint="try again")
        self._authorization = f"Bearer {token}"

    def _may_ask(self, realm: str) -> bool:
        """True for HTTPS, and on this computer for HTTP. A registry may name anything, a file as well."""
        try:
            parts = urlsplit(realm)
        except ValueError:
            return False
        if parts.scheme == "http":
            return self._url.startswith("http:") and _LOOPBACK.fullmatch(parts.netloc) is not None
        return parts.scheme == "https" and bool(parts.hostname)

    def _error(self, error: HTTPError) -> ImageError:
        if error.code in (401, 403):
            hint = f"docker login {self._reference.registry}"
            return ImageError(
                f"the registry refuses access to {self._reference}: HTTP {error.code}", hint=hint
            )
        if error.code == 404:
            hint = "check its name and its tag"
            return ImageError(f"the registry has no {self._reference}: HTTP 404", hint=hint)
        return ImageError(f"the registry of {self._reference} answers HTTP {error.code}", hint="try again")


def _wrong_architecture(reference: ImageReference, found: str) -> ImageError:
    return ImageError(
        f"{reference} is for {found}; the machines that are rented are {ARCHITECTURE}",
        hint=f"choose an image for linux/{ARCHITECTURE}",
    )
