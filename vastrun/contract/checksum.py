"""Checksum: SHA-256 of a file, as `hashlib.file_digest` computes it, which needs Python 3.11."""

from __future__ import annotations

import hashlib
from typing import BinaryIO

_CHUNK_BYTES = 1 << 20


def sha256_of(file: BinaryIO) -> str:
    """Return the hexadecimal digest of the rest of a file. Raises OSError."""
    digest, chunk = hashlib.sha256(), memoryview(bytearray(_CHUNK_BYTES))
    while count := file.readinto(chunk):  # type: ignore[attr-defined]
        digest.update(chunk[:count])
    return digest.hexdigest()
