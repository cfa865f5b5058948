"""The market of these tests: machines that take a moment to load, with extras that are worth counting."""

from __future__ import annotations

from collections.abc import Sequence

from tests.emulators.instance import Pace
from tests.emulators.machines import Machine

LOADING = Pace(created_s=0.3, loading_s=1.2)


def machines(count: int) -> Sequence[Machine]:
    """Storage costs a sixth of what the GPU does, and a run's traffic is a part of its bill that shows."""
    return [
        Machine(id=41000 + number, storage_usd=6.0, inet_down_usd=0.5, inet_up_usd=0.5)
        for number in range(count)
    ]
