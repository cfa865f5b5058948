"""Folders of code that are shipped."""

from pathlib import Path

import pytest

from tests.launcher.bundle.bundles import git


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("print('hello')\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    return folder


@pytest.fixture
def checkout(code: Path) -> Path:
    git(code, "init", "-q")
    (code / ".gitignore").write_text("*.log\n")
    git(code, "add", ".")
    git(code, "commit", "-qm", "first")
    return code
