"""A registry's HTTP API: what a tag names now, how large it is, for which machines, with which labels."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

from vastrun.launcher.core.errors import ImageError
from vastrun.launcher.core.image_ref import HUB, ImageReference
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.caps import ExchangeBudget
from vastrun.launcher.image.lock import ARCHITECTURE

Login = Callable[[str], tuple[str, str] | None]
"""The user and the password for a registry; None: it is asked as anybody."""

_HUB_SERVER = "registry-1.docker.io"
_TIMEOUT_S = 30.0
_CHUNK = 1 << 16
_INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_LOOPBACK = re.compile(r"(localhost|127\.[\d.]+)(:\d+)?")
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HEADER = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, kw_only=True)
class PublishedImage:
    """An image as a registry has it."""

    reference: ImageReference
    """With its digest."""
    architecture: str
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
        name = reference.tag or reference.digest or "latest"
        kind, manifest, digest = repository.manifest(name)
        # The index has the digest that a pull by tag shows; what the image holds stands one level below.
        if kind in _INDEXES or manifest.has("manifests"):
            _, manifest, _ = repository.manifest(_for_our_machines(manifest, reference))
        config_blob = repository.blob(manifest.within("config").digest("digest"))
        config = RegistryAnswer.of(config_blob, str(reference))
        architecture = config.text("architecture") or "nothing known"
        if architecture != ARCHITECTURE:
            raise _wrong_architecture(reference, architecture)
        return PublishedImage(
            reference=ImageReference.of(f"{reference.tagged}@{digest}"),
            architecture=architecture,
            size_mb=round(sum(layer.size("size") for layer in manifest.each("layers")) / 1e6),
            labels=config.within("config").within("Labels").texts(),
        )


class _Repository:
    """One repository, with the token that it asks for."""

    def __init__(self, reference: ImageReference, login: Login, budget: ExchangeBudget) -> None:
        host = _HUB_SERVER if reference.registry == HUB else reference.registry
        path = reference.repository
        if reference.registry == HUB and "/" not in path:
            path = f"library/{path}"
        # As Docker does: a registry on this computer needs no certificate.
        scheme = "http" if _LOOPBACK.fullmatch(host) else "https"
        self._url = f"{scheme}://{host}/v2/{path}"
        self._reference, self._login, self._budget = reference, login, budget
        self._authorization = ""

    def manifest(self, name: str) -> tuple[str, RegistryAnswer, str]:
        """Return its media type, itself, and the digest of its bytes."""
        kind, content = self._get(f"{self._url}/manifests/{name}", accept=(*_INDEXES, *_MANIFESTS))
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        if name.startswith("sha256:") and name != digest:
            raise ImageError(f"{self._reference}: the registry answers {name} with {digest}")
        return kind, RegistryAnswer.of(content, str(self._reference)), digest

    def blob(self, digest: str) -> bytes:
        """Return a blob, as its digest says."""
        _, content = self._get(f"{self._url}/blobs/{digest}", accept=("*/*",))
        if f"sha256:{hashlib.sha256(content).hexdigest()}" != digest:
            raise ImageError(f"{self._reference}: the registry's {digest} is damaged")
        return content

    def _get(self, url: str, accept: tuple[str, ...]) -> tuple[str, bytes]:
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

    def _ask(self, url: str, accept: tuple[str, ...]) -> tuple[str, bytes]:
        """Send one request. Raises HTTPError for the caller to interpret; ImageError without a response."""
        request = Request(url, headers={"Accept": ", ".join(accept)})
        if self._authorization:
            # Not sent along when the registry points to another server.
            request.add_unredirected_header("Authorization", self._authorization)
        self._budget.spend(items=1)
        try:
            with urlopen(request, timeout=self._budget.remaining_s(_TIMEOUT_S)) as answer:
                chunks = iter(lambda: answer.read1(_CHUNK), b"")
                return str(answer.headers.get_content_type()), b"".join(self._budget.receive(chunks))
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
            _, content = self._ask(f"{realm}?{query}", ("application/json",))
        except HTTPError as error:
            raise self._error(error) from error
        self._authorization = f"Bearer {RegistryAnswer.of(content, str(self._reference)).token()}"

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


def _for_our_machines(index: RegistryAnswer, reference: ImageReference) -> str:
    """The digest of the manifest for the machines that are rented."""
    platforms = {
        entry.within("platform").text("architecture") or "?": entry.digest("digest")
        for entry in index.each("manifests")
        if entry.within("platform").text("os") == "linux"
    }
    if ARCHITECTURE not in platforms:
        raise _wrong_architecture(reference, " and ".join(sorted(platforms)) or "nothing known")
    return platforms[ARCHITECTURE]


def _wrong_architecture(reference: ImageReference, found: str) -> ImageError:
    return ImageError(
        f"{reference} is for {found}; the machines that are rented are {ARCHITECTURE}",
        hint=f"choose an image for linux/{ARCHITECTURE}",
    )


class RegistryAnswer:
    """One JSON object of an answer. Whatever it lacks, or has of another type, is an ImageError."""

    def __init__(self, fields: Mapping[str, Any], about: str) -> None:
        """`about`: what was asked for, as messages name it."""
        self._fields, self._about = fields, about

    @classmethod
    def of(cls, content: bytes, about: str) -> RegistryAnswer:
        """Parse it. Raises ImageError."""
        try:
            fields = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise _malformed(about, "it is not JSON") from error
        if not isinstance(fields, dict):
            raise _malformed(about, "it is not a JSON object")
        return cls(fields, about)

    def has(self, name: str) -> bool:
        """Tell whether there is such a field."""
        return name in self._fields

    def text(self, name: str) -> str:
        """Return a text; empty where there is none."""
        value = self._fields.get(name)
        if value is not None and not isinstance(value, str):
            raise _malformed(self._about, f"{name} is not text")
        return (value or "")[: caps.REGISTRY_CHARACTERS]

    def digest(self, name: str) -> str:
        """Return a digest, which must be there."""
        digest = self.text(name)
        if not _DIGEST.fullmatch(digest):
            raise _malformed(self._about, f"{name} is not a sha256 digest")
        return digest

    def size(self, name: str) -> int:
        """Return a number of bytes, which must be there."""
        value = self._fields.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= caps.LAYER_BYTES:
            raise _malformed(self._about, f"{name} is not a number of bytes")
        return value

    def within(self, name: str) -> RegistryAnswer:
        """Return an object in it; an empty one where there is none."""
        value = self._fields.get(name)
        if value is not None and not isinstance(value, dict):
            raise _malformed(self._about, f"{name} is not an object")
        return RegistryAnswer(value or {}, self._about)

    def each(self, name: str) -> Sequence[RegistryAnswer]:
        """Return the objects of a list, which must be there."""
        values = self._fields.get(name)
        if not isinstance(values, list) or len(values) > caps.REGISTRY_ENTRIES:
            raise _malformed(
                self._about, f"{name} is not a list, or has more than {caps.REGISTRY_ENTRIES} entries"
            )
        if not all(isinstance(value, dict) for value in values):
            raise _malformed(self._about, f"{name} has entries that are not objects")
        return [RegistryAnswer(value, self._about) for value in values]

    def texts(self) -> Mapping[str, str]:
        """Return its fields that are texts, at most caps.REGISTRY_LABELS."""
        found = [(name, value) for name, value in self._fields.items() if isinstance(value, str)]
        return {name: value[: caps.REGISTRY_CHARACTERS] for name, value in found[: caps.REGISTRY_LABELS]}

    def token(self) -> str:
        """Return the token of a login, fit for a header."""
        token = self.text("token") or self.text("access_token")
        if not _HEADER.fullmatch(token):
            raise _malformed(self._about, "it holds no token")
        return token


def _malformed(about: str, why: str) -> ImageError:
    return ImageError(f"the registry of {about} sends a malformed answer: {why}", hint="try again")
