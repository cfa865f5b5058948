"""Parameters for which a test is slow: `make check` and CI run them, `make test` does not."""

from typing import Any

import pytest


def slow(*cases: tuple[Any, ...]) -> list[Any]:
    """Cases of `parametrize` that are marked as slow."""
    return [pytest.param(*case, marks=pytest.mark.slow) for case in cases]
