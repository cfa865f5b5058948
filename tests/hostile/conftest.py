"""What a lie may cost the launcher: its memory is watched in every test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.first_draw import draw_text

MAX_MB = 120.0
"""A launcher takes some 80 MB by itself; with this it stays under 200."""
_CLEAR, _RESET_PEAK = Path("/proc/self/clear_refs"), "5"


@pytest.fixture(scope="session", autouse=True)
def _all_of_unicode() -> None:
    """Without its cache, Hypothesis now lists all of Unicode: 200 MB, which no lie took."""
    draw_text()


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """The test takes no more memory at any moment than a launcher may, whatever its box says.

    Pages of files come and go as the kernel likes, and of the swap: neither counts as taken.
    """
    if not _CLEAR.exists():  # a kernel that does not count it
        yield
        return
    _CLEAR.write_text(_RESET_PEAK)
    before = _memory_mb()
    yield
    after = _memory_mb()
    files_mb = max(before["RssFile"], after["RssFile"])
    taken_mb = after["VmHWM"] - files_mb - before["RssAnon"] - before["VmSwap"]
    assert taken_mb <= MAX_MB, f"{taken_mb:.0f} MB: {before} before, {after} after"


def _memory_mb() -> dict[str, float]:
    lines = Path("/proc/self/status").read_text().splitlines()
    return {
        name: float(amount.split()[0]) / 1000
        for name, _, amount in (line.partition(":") for line in lines)
        if amount.endswith("kB")
    }
