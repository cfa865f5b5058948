"""Fixtures of the output store's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.launcher.outputs.boxes import run_in
from vastrun.launcher.core import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return run_in(tmp_path / "runs" / "calm-heron-3f1a")
