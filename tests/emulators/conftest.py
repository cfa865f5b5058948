"""Emulators for the emulator's own tests: one in real time, and one whose clock the test moves."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulators import ssh_keys
from tests.emulators.clock import Clock
from tests.emulators.machines import Machine
from tests.emulators.played_box import PlayedBoxes
from tests.emulators.vast import VastEmulator
from tests.fakebox import Training

NO_LEASE = {f"LEASE_{name}_S": "inf" for name in ("LIFE", "SHIP", "COLLECT", "GRACE")} | {
    "LEASE_LIFE_CAUSE": ""
}


@pytest.fixture
def vast() -> Iterator[VastEmulator]:
    """Time is real, calls may come fast."""
    with VastEmulator(rate_limits=False) as vast:
        yield vast


@pytest.fixture
def still() -> Iterator[VastEmulator]:
    """One machine with two GPUs; time stands still until the test advances it.

    It is the beginning of a day: what is charged on another one would be listed apart. Its boxes are
    played: most of its tests ask only the API.
    """
    prices = {"gpu_usd": 0.5, "min_bid_usd": 0.3, "storage_usd": 0.72}
    machine = Machine(id=41000, gpus=2, days=10, cluster_id=7, **prices)
    clock = Clock(0, began=time.time() // 86400 * 86400)
    make_box = PlayedBoxes(clock, lambda _: Training(), NO_LEASE).make
    with VastEmulator([machine], clock=clock, rate_limits=False, make_box=make_box) as vast:
        yield vast


@pytest.fixture
def ssh_key(tmp_path: Path) -> Path:
    """A private key; the public one lies beside it."""
    key = tmp_path / "key"
    ssh_keys.make_pair(key)
    return key
