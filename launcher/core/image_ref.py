"""Image references: the names of container images, as Docker reads them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

HUB = "docker.io"
_REGISTRY = re.compile(r"[A-Za-z0-9.-]+(?::\d+)?", re.ASCII)
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"({_PART}(?:/{_PART})*)(?::(\w[\w.-]{{0,127}}))?(?:@(sha256:[0-9a-f]{{64}}))?", re.ASCII
)


@dataclass(frozen=True, kw_only=True)
class ImageReference:
    """Reference to one image: registry, repository, tag and digest."""

    registry: str
    repository: str
    tag: str = ""
    digest: str = ""

    @classmethod
    def of(cls, text: str) -> ImageReference:
        """Parse an image's name. Raises ValueError with the expected form."""
        first, slash, rest = text.partition("/")
        # As Docker decides it.
        is_registry = slash and ("." in first or ":" in first or first == "localhost")
        registry, image = (first, rest) if is_registry else (HUB, text)
        match = _IMAGE.fullmatch(image)
        if match is None or not _REGISTRY.fullmatch(registry):
            raise ValueError(f"expected an image like pytorch/pytorch:2.13.0-cuda13.0, got {text!r}")
        return cls(registry=registry, repository=match[1], tag=match[2] or "", digest=match[3] or "")

    @property
    def is_pinned(self) -> bool:
        """True if it has a digest: a tag may mean another image tomorrow."""
        return bool(self.digest)

    @property
    def name(self) -> str:
        """Name without tag and digest."""
        return self.repository if self.registry == HUB else f"{self.registry}/{self.repository}"

    @property
    def tagged(self) -> str:
        """Name with its tag, without its digest."""
        return str(replace(self, digest=""))

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.name}{tag}{digest}"
