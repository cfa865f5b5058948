"""Supervisors that are started and, at the end of a test, killed with all their processes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.onstart.supervision.forked import Train, starting
from tests.onstart.supervision.launches import Launched, Launcher
from vastrun.contract import layout


@pytest.fixture
def launch(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Launcher]:
    """Starts a supervisor, over torch where a test is marked so; what is left at the end is killed."""
    launched: list[Launched] = []
    torch = request.node.get_closest_marker("torch") is not None

    def start(program: str, kind: type[Launched] = Launched, **job: Any) -> Launched:
        launched.append(kind(tmp_path / f"box-{len(launched)}", program, torch=torch, **job))
        return launched[-1]

    yield start
    for run in launched:
        run.end()


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Train]:
    yield from starting(tmp_path)


@pytest.fixture
def box(tmp_path: Path) -> Path:
    (tmp_path / layout.RANKS).mkdir(parents=True)
    (tmp_path / layout.RAW_LOGS).mkdir(parents=True)
    return tmp_path
