"""An emulated Vast, and the provider on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulators.instance import Pace
from tests.emulators.vast import VastEmulator
from tests.launcher.providers.vast.rentals import open_market
from vastrun.launcher.providers.vast import VastProvider


@pytest.fixture
def pace() -> Pace:
    """Return the emulator's pace, for tests to say another one."""
    return Pace()


@pytest.fixture
def vast(pace: Pace) -> Iterator[VastEmulator]:
    with VastEmulator(rate_limits=False, pace=pace) as vast:
        yield vast


@pytest.fixture
def provider(vast: VastEmulator, tmp_path: Path) -> VastProvider:
    return open_market(vast, tmp_path)
