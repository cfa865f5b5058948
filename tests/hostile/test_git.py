"""A look at the user's code runs nothing that came from a box, and shows git no key."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from vastrun.launcher.bundle.checkout import worktree


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "canary"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one file, and another checkout in it."""
    for folder in (tmp_path / "code", tmp_path / "code" / "results"):
        folder.mkdir()
        (folder / "train.py").write_text("x = 1\n")
        git(folder, "init", "-q")
        git(folder, "add", "train.py")
    return tmp_path / "code"


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", folder, *words], check=True, timeout=60)


@pytest.mark.parametrize("where", [".", "results"])
@pytest.mark.parametrize("key", ["core.fsmonitor", "core.hooksPath"])
def test_settings_of_a_repository_run_nothing(where: str, key: str, checkout: Path, canary: Path) -> None:
    hooks = checkout.parent / "hooks"
    hooks.mkdir()
    for hook in ("fsmonitor", "post-index-change"):
        (hooks / hook).write_text(f"#!/bin/sh\ntouch '{canary}'\n")
        (hooks / hook).chmod(0o755)
    git(checkout / where, "config", key, str(hooks if key == "core.hooksPath" else hooks / "fsmonitor"))

    tree = worktree(str(checkout))

    assert tree.paths == ("results/train.py", "train.py")
    assert tree.dirty
    assert not canary.exists()


def test_git_sees_no_key_of_the_user(
    checkout: Path, canary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = tmp_path / "bin" / "git"
    stand_in.parent.mkdir()
    stand_in.write_text(f"#!/bin/sh\nenv >>'{canary}'\nexec '{shutil.which('git')}' \"$@\"\n")
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stand_in.parent}:/usr/bin:/bin")
    for name in ("VAST_API_KEY", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "GIT_DIR"):
        monkeypatch.setenv(name, "s3cret")

    worktree(str(checkout))

    assert "HOME=" in canary.read_text()
    assert "s3cret" not in canary.read_text()
