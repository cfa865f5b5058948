"""Files that are shipped though git ignores them, and why a file was not shipped.

Files with credentials do not leave this computer by themselves, and git LFS's pointers are known.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.jobs import command_job
from tests.launcher.bundle.bundles import git, write_files
from tests.runs import a_run
from vastrun.launcher.bundle.checkout import why_not_shipped, worktree
from vastrun.launcher.bundle.outgoing import is_lfs_pointer
from vastrun.launcher.commands.explanation import missing_file
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Cause, Phase
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.job import Code


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository that ignores a file, a folder and a kind of file."""
    root = tmp_path / "checkout"
    names = ("train.py", "conf/local.yaml", "conf/base.yaml", "data/a/x.csv", "data/y.csv", "best.ckpt")
    write_files(root, {**dict.fromkeys(names, "x"), ".gitignore": "conf/local.yaml\ndata/\n*.ckpt\n"})
    git(root, "init", "-q")
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
    absent = ("no/such.yaml", "conf", "", "/etc/passwd", "../x", "a\0b", "x" * 5000)
    assert [why(name) for name in ("train.py", *absent)] == [None] * 8
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


HELD = {
    ".env": "WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567\n",
    ".env.production": "DEBUG=1\n",
    ".netrc": "machine api.wandb.ai login user password x\n",
    ".aws/credentials": "[default]\naws_access_key_id = AKIA\n",
    "keys/id_ed25519": "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn\n-----END OPENSSH PRIVATE KEY-----\n",
    "kaggle.json": '{"username":"a","key":"b"}',
    "conf/api.json": '{"api_key": "Zx81kqPf02mmQw7Ab4Lr"}',
    "conf/data.txt": "https://data.org/x.zip?X-Amz-Signature=Zx81kqPf02mmQw7Ab4Lr\n",
    "pip.conf": "index-url = https://user:hunter2@pypi.corp/simple\n",
    "conf/hub.yaml": f"login: hf_{'a1B2' * 8}\n",
}
SHIPPED = {
    "train.py": f"TOKEN = 'hf_{'a1B2' * 8}'\n",
    ".env.example": "WANDB_API_KEY=\n",
    "config.yaml": "tokenizer: gpt2-large-2023-11-xxx\npad_token: '<pad>'\nnum_keys: 8\nkey_dim: 64\n",
    "special_tokens_map.json": '{"eos_token": "</s>", "unk_token": {"content": "<unk>"}}',
    ".gitattributes": "# see https://github.com/x/y/overrides.md#generated-code\n",
    "requirements.txt": f"a @ https://x.org/a.whl#sha256={'a1' * 32}\nb @ git+https://x.org/b#egg=b\n",
    "urls.csv": "https://zenodo.org/records/1/files/x.csv?download=1&format=csv\n",
    "weights.bin": "\0key=0123456789abcdef0123456789abcdef",
    "id_ed25519.pub": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI user@host\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_files(tmp_path, {**HELD, **SHIPPED})
    return tmp_path


def test_files_with_credentials_are_left_out_unless_the_job_names_them(folder: Path) -> None:
    tree = worktree(str(folder))
    assert set(tree.withheld) == HELD.keys()
    assert set(tree.paths) == SHIPPED.keys()
    job = replace(command_job(), code=Code(path=str(folder)))
    assert why_not_shipped(".env", job) == (".env", "left out, since it holds credentials")
    named = worktree(str(folder), (), [".env", "keys"])
    assert set(named.paths) == {*SHIPPED, ".env", "keys/id_ed25519"}


def test_a_pointer_of_git_lfs_is_known(folder: Path) -> None:
    (folder / "backbone.pth").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    )
    files = worktree(str(folder)).files
    assert [file.name for file in files if is_lfs_pointer(file)] == ["backbone.pth"]
