"""A fresh terminal, or a world in virtual time, for each test."""

from pathlib import Path

import pytest

from tests.launcher.terminal import Terminal
from tests.launcher.world import World


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
