"""Fixtures of the output store's tests."""

from pathlib import Path

import pytest

from tests.launcher.outputs.boxes import run_in
from tests.launcher.outputs.training_box import Home, TrainingBox
from vastrun.launcher.core import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return run_in(tmp_path / "runs" / "calm-heron-3f1a")


@pytest.fixture
def box() -> TrainingBox:
    return TrainingBox()


@pytest.fixture
def home(tmp_path: Path, box: TrainingBox) -> Home:
    return Home(tmp_path / "out", box)
