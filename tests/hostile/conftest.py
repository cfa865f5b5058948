"""What a lie may cost the launcher: its memory is watched in every test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

MOST_MB = 120.0
"""A launcher takes some 80 MB by itself; with this it stays under 200."""
_CLEAR, _RESET_PEAK = Path("/proc/self/clear_refs"), "5"


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """The test takes no more memory at any moment than a launcher may, whatever its box says."""
    if not _CLEAR.exists():  # a kernel that does not count it
        yield
        return
    before_mb = _reset_peak()
    yield
    taken_mb = _mb("VmHWM") - before_mb
    assert taken_mb <= MOST_MB, f"{taken_mb:.0f} MB"


def _reset_peak() -> float:
    """The memory in use, from which the peak is measured."""
    _CLEAR.write_text(_RESET_PEAK)
    return _mb("VmRSS")


def _mb(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1000
