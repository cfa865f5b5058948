"""A program in a folder of its own, with a fake market."""

from pathlib import Path

import pytest

from tests.launcher.api.notebook import Notebook


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Notebook:
    monkeypatch.chdir(tmp_path)
    return Notebook(tmp_path)
