"""Progress of an image pull, by the lines that Docker prints for its layers. Pure functions."""

from __future__ import annotations

import re

_LAYER = re.compile(
    r": (Pulling fs layer|Downloading|Verifying Checksum|Download complete|Extracting|Pull complete)"
)
_RETRY = re.compile(r": Retrying in \d+ second")


def is_layer(line: str) -> bool:
    """Tell whether the line says that a layer is on its way."""
    return _LAYER.search(line) is not None


def is_retry(line: str) -> bool:
    """Tell whether the line counts down to another try: it changes, and nothing arrives."""
    return _RETRY.search(line) is not None
