"""Answers of a registry as typed values, or refused: it may be a stranger's."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from launcher.core.errors import ImageError
from launcher.gate import caps

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HEADER = re.compile(r"[\x21-\x7e]+")


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
            raise _malformed(about, "it is no JSON") from error
        if not isinstance(fields, dict):
            raise _malformed(about, "it is no JSON object")
        return cls(fields, about)

    def has(self, name: str) -> bool:
        """Tell whether there is such a field."""
        return name in self._fields

    def text(self, name: str) -> str:
        """Return a text; empty where there is none."""
        value = self._fields.get(name)
        if value is not None and not isinstance(value, str):
            raise _malformed(self._about, f"{name} is no text")
        return (value or "")[: caps.REGISTRY_CHARACTERS]

    def digest(self, name: str) -> str:
        """Return a digest, which must be there."""
        digest = self.text(name)
        if not _DIGEST.fullmatch(digest):
            raise _malformed(self._about, f"{name} is no sha256 digest")
        return digest

    def size(self, name: str) -> int:
        """Return a number of bytes, which must be there."""
        value = self._fields.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= caps.LAYER_BYTES:
            raise _malformed(self._about, f"{name} is no number of bytes")
        return value

    def within(self, name: str) -> RegistryAnswer:
        """Return an object in it; an empty one where there is none."""
        value = self._fields.get(name)
        if value is not None and not isinstance(value, dict):
            raise _malformed(self._about, f"{name} is no object")
        return RegistryAnswer(value or {}, self._about)

    def each(self, name: str) -> Sequence[RegistryAnswer]:
        """Return the objects of a list, which must be there."""
        values = self._fields.get(name)
        if not isinstance(values, list) or len(values) > caps.REGISTRY_ENTRIES:
            raise _malformed(
                self._about, f"{name} is no list, or has more than {caps.REGISTRY_ENTRIES} entries"
            )
        if not all(isinstance(value, dict) for value in values):
            raise _malformed(self._about, f"{name} has entries that are no objects")
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
