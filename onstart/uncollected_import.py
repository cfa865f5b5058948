"""Uncollected import: imports without garbage collection. Standard library only."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Disable collection during imports, and exclude the imported objects later.

    A collection through torch's objects takes half a second, and would copy their pages in each fork of this
    process.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
