"""A terminal for each test, with or without a Vast of its own, and nothing left behind by any."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.market import LOADING, machines
from tests.e2e.terminal import Terminal
from tests.emulators.vast import VastEmulator


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.clean()


@pytest.fixture
def vast() -> Iterator[VastEmulator]:
    """Four machines."""
    with VastEmulator(machines(4), pace=LOADING) as vast:
        yield vast


@pytest.fixture
def rented(tmp_path: Path, vast: VastEmulator) -> Iterator[Terminal]:
    """A terminal of somebody with an account on that Vast."""
    folder = tmp_path / "rented"
    folder.mkdir()
    terminal = Terminal(folder, **vast.variables)
    yield terminal
    terminal.clean()


@pytest.fixture
def mac(tmp_path: Path) -> Iterator[Terminal]:
    """A terminal on a Mac, without an account anywhere."""
    terminal = Terminal(
        tmp_path,
        PYTHONPATH=str(Path(__file__).parent / "mac"),
        XDG_CONFIG_HOME=str(tmp_path / "config"),
        DOCKER_HOST=f"unix://{tmp_path}/no-docker.sock",
    )
    yield terminal
    terminal.clean()


@pytest.fixture
def renting(mac: Terminal, vast: VastEmulator) -> Terminal:
    """The same, with an account on that Vast."""
    mac.variables |= vast.variables
    return mac
