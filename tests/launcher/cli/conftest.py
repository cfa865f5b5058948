"""Fixtures of the commands' tests."""

from pathlib import Path

import pytest

from tests.launcher.desk import Desk


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user's code, in which the command is typed."""
    code = tmp_path / "my code"
    code.mkdir()
    monkeypatch.chdir(code)
    return code


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)
