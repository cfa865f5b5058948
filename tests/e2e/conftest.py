"""A terminal for each test, with or without a Vast of its own, and nothing left behind by any."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.terminal import Terminal
from tests.emulators.instance import Pace
from tests.emulators.machines import Machine
from tests.emulators.vast import VastEmulator


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.clean()


@pytest.fixture
def vast() -> Iterator[VastEmulator]:
    """Four machines that are up at once when they are rented, so that all of a run is billed."""
    machines = [Machine(id=number) for number in range(41000, 41004)]
    with VastEmulator(machines, pace=Pace(created_s=0, loading_s=0)) as vast:
        yield vast


@pytest.fixture
def rented(tmp_path: Path, vast: VastEmulator) -> Iterator[Terminal]:
    """A terminal of somebody with an account on that Vast."""
    folder = tmp_path / "rented"
    folder.mkdir()
    terminal = Terminal(folder, VAST_URL=vast.url, VAST_API_KEY=vast.account_key)
    yield terminal
    terminal.clean()
