"""A repository of somebody else: nothing of it is run, and nothing outside of it is packed."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.hostile.repository import Traps, make_dirty, put_into_index
from tests.launcher.bundle.bundles import SPEC, git, job_with, packed, shipped_code, write_files
from vastrun.contract import layout
from vastrun.launcher.bundle.checkout import commit_of, ignored_by_git, worktree
from vastrun.launcher.core import Origin
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.job import Code

SECRET = b"-----BEGIN OPENSSH PRIVATE KEY-----"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / ".ssh" / "id_rsa"
    path.parent.mkdir()
    path.write_bytes(SECRET)
    return path


@pytest.mark.parametrize("kind", ["absolute", "parent", "inner parent", "of git"])
def test_index_that_names_files_outside_packs_none_of_them(checkout: Path, secret: Path, kind: str) -> None:
    names = {
        "absolute": str(secret),
        "parent": "../.ssh/id_rsa",
        "inner parent": "part/../../.ssh/id_rsa",
        "of git": ".git/config",
    }
    (checkout / "part").mkdir()
    put_into_index(checkout, names[kind])
    if kind == "of git":
        assert ".git/config" not in shipped_code(job_with(checkout))
    else:
        with pytest.raises(UsageError, match=r"id_rsa' is not within"):
            packed(job_with(checkout))


@pytest.mark.parametrize("name", ["../../.ssh/id_rsa", "../../.ssh", "..", "."])
def test_nor_does_the_index_of_a_checkout_within(checkout: Path, secret: Path, name: str) -> None:
    git(secret.parent, "init", "-q")
    nested = checkout / "nested"
    nested.mkdir()
    git(nested, "init", "-q")
    put_into_index(nested, name)
    with pytest.raises(UsageError, match=r"is not within"):
        packed(job_with(checkout))


@pytest.mark.parametrize("include", ["data/*", "data", "data/id_rsa", "**/id_rsa"])
def test_a_pattern_packs_nothing_behind_a_link_that_leads_out(code: Path, secret: Path, include: str) -> None:
    (code / ".gitignore").write_text("data\n")
    git(code, "init", "-q")
    (code / "data").symlink_to(secret.parent)
    spec = replace(SPEC, code=Code(path=str(code), include=(include,)))
    with pytest.raises(UsageError, match=r"points out of its folder|no file in"):
        packed(spec)


def test_a_tracked_folder_that_became_a_link_is_not_followed(checkout: Path, secret: Path) -> None:
    write_files(checkout, {"keys/id_rsa": "harmless"})
    git(checkout, "add", ".")
    (checkout / "keys" / "id_rsa").unlink()
    (checkout / "keys").rmdir()
    (checkout / "keys").symlink_to(secret.parent)
    (checkout / ".git" / "info" / "exclude").write_text("keys\n")
    assert list(shipped_code(job_with(checkout))) == [".gitignore", "run.sh", "train.py"]


def test_a_tracked_file_that_became_a_pipe_is_left_out(checkout: Path) -> None:
    (checkout / "train.py").unlink()
    os.mkfifo(checkout / "train.py")
    assert "train.py" not in shipped_code(job_with(checkout))


def test_a_checkpoint_that_is_a_link_out_of_its_folder_is_refused(tmp_path: Path, secret: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / "model.pt").symlink_to(secret)
    with pytest.raises(UsageError, match="points out of"):
        packed(SPEC, origin=Origin(folder=folder))
    (folder / "model.pt").unlink()
    (folder / "step-1.pt").write_text("weights")
    (folder / "last.pt").symlink_to("step-1.pt")
    assert packed(SPEC, origin=Origin(folder=folder))[f"{layout.RESUME}/last.pt"] == b"weights"


@pytest.mark.parametrize("name", [".gitignore", ".gitattributes", ".git/HEAD", ".git/refs/heads/x"])
def test_a_pipe_that_git_would_wait_for_is_an_error(checkout: Path, name: str) -> None:
    (checkout / name).unlink(missing_ok=True)
    if name == ".git/refs/heads/x":
        (checkout / ".git/HEAD").write_text("ref: refs/heads/x\n")
    os.mkfifo(checkout / name)
    write_files(checkout, {"train.py": "git reads its attributes", "new.py": "git reads what is ignored"})
    with pytest.raises(UsageError, match="git cannot read"):
        packed(job_with(checkout))


def test_rules_without_end_are_an_error(checkout: Path) -> None:
    (checkout / ".gitignore").write_text("a\n" * 50_000_000)
    (checkout / "new.py").write_text("not tracked: git reads what is ignored")
    with pytest.raises(UsageError, match="git cannot read"):
        packed(job_with(checkout))


def test_no_setting_of_a_repository_starts_a_program(checkout: Path, tmp_path: Path) -> None:
    traps, nested = Traps(tmp_path), checkout / "nested"
    write_files(nested, {"train.py": "print('nested')\n"})
    for folder in (nested, checkout):
        git(folder, "init", "-q")
        git(folder, "add", "train.py")
        git(folder, "commit", "-qm", "first", "--allow-empty")
    for folder in (nested, checkout):
        traps.set(folder)
        make_dirty(folder)
    assert "nested/train.py" in shipped_code(job_with(checkout))
    ignored_by_git(worktree(str(checkout)))
    assert commit_of(checkout)[1] is True
    assert traps.sprung == []


@pytest.mark.parametrize("setting", ['[filter "x"]\nclean', '[filter "x"]\nprocess', "[core]\nfsmonitor"])
def test_the_traps_spring_where_git_reads_the_settings(checkout: Path, tmp_path: Path, setting: str) -> None:
    traps = Traps(tmp_path)
    with (checkout / ".git" / "config").open("a") as file:
        file.write(f'{setting} = "{traps.program}"\n')
    make_dirty(checkout)
    subprocess.run(["git", "-C", str(checkout), "status"], capture_output=True, check=False)
    assert traps.sprung != []
    count = len(traps.sprung)
    packed(job_with(checkout))
    assert len(traps.sprung) == count


def test_the_commit_is_known_of_linked_checkouts_packed_refs_and_other_hashes(
    checkout: Path, tmp_path: Path
) -> None:
    git(checkout, "pack-refs", "--all")
    git(checkout, "worktree", "add", "-q", str(tmp_path / "linked"))
    commit, dirty = commit_of(tmp_path / "linked")
    assert (commit, dirty) == commit_of(checkout)
    assert (len(commit or ""), dirty) == (40, False)
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q", "--object-format=sha256")
    assert commit_of(other) == (None, False)
    (other / "a.py").write_text("x")
    git(other, "add", ".")
    git(other, "commit", "-qm", "first")
    git(other, "update-index", "--split-index")
    commit, dirty = commit_of(other)
    assert (len(commit or ""), dirty) == (64, False)
    assert worktree(str(other)).paths == ("a.py",)


def test_what_the_user_ignores_everywhere_is_ignored(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".gitconfig").write_text("[core]\nexcludesFile = ~/mine\n")
    (tmp_path / "mine").write_text("*.swp\n")
    (checkout / "a.swp").write_text("x")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "a.swp" not in worktree(str(checkout)).paths


@pytest.fixture
def deep(code: Path) -> Iterator[Path]:
    """A folder with a file at a depth at which Python no longer recurses."""
    inner = code.joinpath(*["d"] * 1500)
    subprocess.run(["mkdir", "-p", str(inner)], check=True)
    (inner / "a.py").write_text("x")
    yield code
    subprocess.run(["rm", "-rf", str(code / "d")], check=True)


@pytest.mark.slow
def test_a_folder_may_be_nested_as_deeply_as_the_disk_allows(deep: Path) -> None:
    assert len(worktree(str(deep)).paths) == 3
    with pytest.raises(UsageError, match="too many folders"):
        worktree(str(deep), include=["**/a.py"])
    git(deep, "init", "-q")
    assert len(worktree(str(deep)).paths) == 3


def test_git_sees_no_key_of_the_user(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    canary = tmp_path / "canary"
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
