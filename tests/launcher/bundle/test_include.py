"""Files that are shipped though git ignores them, and why a file was not shipped."""

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.jobs import command_job
from tests.runs import a_run
from vastrun.launcher.bundle.checkout import why_not_shipped, worktree
from vastrun.launcher.commands.explanation import missing_file
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Cause, Phase
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.job import Code


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository that ignores a file, a folder and a kind of file."""
    root = tmp_path / "checkout"
    for name in ("train.py", "conf/local.yaml", "conf/base.yaml", "data/a/x.csv", "data/y.csv", "best.ckpt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / ".gitignore").write_text("conf/local.yaml\ndata/\n*.ckpt\n")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


def test_what_git_ignores_is_shipped_where_the_job_includes_it(checkout: Path) -> None:
    without = worktree(str(checkout)).paths
    assert without == (".gitignore", "conf/base.yaml", "train.py")
    for include, more in [
        (["conf/local.yaml"], {"conf/local.yaml"}),
        (["conf/*.yaml", "*.ckpt"], {"conf/local.yaml", "best.ckpt"}),
        (["data"], {"data/a/x.csv", "data/y.csv"}),
        (["data/"], {"data/a/x.csv", "data/y.csv"}),
        (["**/*.csv"], {"data/a/x.csv", "data/y.csv"}),
    ]:
        assert set(worktree(str(checkout), (), include).paths) == {*without, *more}


def test_what_is_both_included_and_excluded_is_left_out(checkout: Path) -> None:
    paths = worktree(str(checkout), ["a"], ["data"]).paths
    assert "data/y.csv" in paths
    assert "data/a/x.csv" not in paths


@pytest.mark.parametrize("pattern", ["no/such.yaml", "../other.py", "/etc/passwd", "data/../../x"])
def test_an_included_file_that_is_not_in_the_folder_is_an_error(checkout: Path, pattern: str) -> None:
    with pytest.raises(UsageError, match=r"code\.include"):
        worktree(str(checkout), (), [pattern])


def test_it_is_known_why_a_file_was_not_shipped(checkout: Path) -> None:
    folder = str(checkout)

    def why(name: str, path: str = folder, **code: Any) -> tuple[str, str] | None:
        return why_not_shipped(name, replace(command_job(), code=Code(path=path, **code)))

    assert why("conf/local.yaml") == ("conf/local.yaml", "ignored by git")
    assert why("data/a/missing.csv") == ("data/", "ignored by git")
    assert why("conf/../conf/local.yaml") is None
    assert why("data/y.csv", exclude=("data",)) == ("data/", "named by code.exclude")
    assert why("conf/local.yaml", include=("conf",)) is None
    for shipped_or_absent in (
        "train.py",
        "no/such.yaml",
        "conf",
        "",
        "/etc/passwd",
        "../x",
        "a\0b",
        "x" * 5000,
    ):
        assert why(shipped_or_absent) is None
    assert why("train.py", path=f"{folder}/no-such-folder") is None


@pytest.mark.parametrize(
    ("detail", "path"),
    [
        (
            "your program raised FileNotFoundError: [Errno 2] No such file or directory: 'conf/local.yaml'",
            True,
        ),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/root/box/code/conf/local.yaml'", True),
        ("FileNotFoundError: [Errno 2] No such file or directory: './conf/local.yaml' (rank 0)", True),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'conf/other.yaml'", False),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'train.py'", False),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: '/root/box/code/../conf/local.yaml'",
            False,
        ),
        ("FileNotFoundError: [Errno 2] No such file or directory: '" + "../" * 60 + "etc/passwd'", False),
        ("FileNotFoundError: [Errno 2] No such file or directory: '\x1b[2J", False),
        ("ValueError: cannot parse conf/local.yaml.", True),
        ("ValueError: no local configuration", False),
    ],
)
def test_file_that_a_program_missed_is_found_in_what_it_said(checkout: Path, detail: str, path: bool) -> None:
    run = a_run(
        spec_json=dump_job(replace(command_job(), code=Code(path=str(checkout)))),
        phase=Phase.ENDED,
        out_dir="/nowhere",
        cause=Cause.USER_ERROR,
        detail=detail,
    )
    said = "conf/local.yaml is ignored by git, so it was not uploaded; add it to code.include" if path else ""
    assert missing_file(run) == said
    assert missing_file(replace(run, cause=Cause.DATA)) == ""
    assert missing_file(replace(run, spec_json=dump_job(command_job()))) == ""
