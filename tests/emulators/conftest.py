"""Emulators for the emulator's own tests: one in real time, and one whose clock the test moves."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulators.clock import Clock
from tests.emulators.machines import Machine
from tests.emulators.vast import VastEmulator


@pytest.fixture
def vast() -> Iterator[VastEmulator]:
    """Time is real, calls may come fast."""
    with VastEmulator(rate_limits=False) as vast:
        yield vast


@pytest.fixture
def still() -> Iterator[VastEmulator]:
    """One machine with two GPUs; time stands still until the test advances it.

    It is the beginning of a minute: what is charged in another one would be listed apart.
    """
    prices = {"gpu_usd": 0.5, "min_bid_usd": 0.3, "storage_usd": 0.72}
    machine = Machine(id=41000, gpus=2, days=10, cluster_id=7, **prices)
    with VastEmulator([machine], clock=Clock(0, began=time.time() // 60 * 60), rate_limits=False) as vast:
        yield vast


@pytest.fixture
def ssh_key(tmp_path: Path) -> Path:
    """A private key; the public one lies beside it."""
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    return key
