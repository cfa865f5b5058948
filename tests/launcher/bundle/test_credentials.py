"""Files with credentials do not leave this computer by themselves, and git LFS's pointers are known."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.jobs import command_job
from vastrun.launcher.bundle.checkout import why_not_shipped, worktree
from vastrun.launcher.bundle.outgoing import is_lfs_pointer
from vastrun.launcher.core.job import Code

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
    for name, text in {**HELD, **SHIPPED}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
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
