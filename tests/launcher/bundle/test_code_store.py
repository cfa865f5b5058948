"""Code as it was submitted: kept by its digest, with where it came from, as long as a run needs it."""

import json
import os
import subprocess
from collections.abc import Set
from dataclasses import replace
from pathlib import Path

import pytest

from tests.launcher.bundle.bundles import SPEC, git, job_with, run_of, write_files
from vastrun.contract.records import RecordError
from vastrun.launcher.bundle import Bundler
from vastrun.launcher.bundle.archive import CodeStore
from vastrun.launcher.config import read_job
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.job import JobSpec, Secret
from vastrun.launcher.core.runs import CodeRecord


def store_in(folder: Path, needed: Set[str] = frozenset()) -> CodeStore:
    return CodeStore(folder / "kept", lambda: needed)


def kept(store: CodeStore, spec: JobSpec, environment: dict[str, str] | None = None) -> str:
    digest = Bundler(environment or {}, codes=store).keep_code(spec).code_digest
    assert digest is not None
    return digest


def recorded(store: CodeStore, spec: JobSpec) -> CodeRecord:
    record = store.record(kept(store, spec))
    assert record is not None
    return record


def change_all(folder: Path) -> None:
    """Every kind of change that a commit may lack."""
    (folder / "train.py").write_text("print('changed')\n")
    (folder / "run.sh").chmod(0o644)
    (folder / "gone.txt").unlink()
    (folder / "crlf.txt").write_bytes(b"new\r\n")
    (folder / "weights").write_bytes(bytes(range(256)) * 9)
    (folder / "latin").write_bytes(b"caf\xe9\n")
    (folder / "an odd \u00e4 name").write_text("x")
    (folder / "link").symlink_to("train.py")
    (folder / "left out.log").write_text("x")


@pytest.mark.parametrize(("part", "digests"), [(".", "sha1"), ("part", "sha1"), (".", "sha256")])
def test_the_patch_makes_the_shipped_files_out_of_the_commits(
    code: Path, tmp_path: Path, part: str, digests: str
) -> None:
    git(code, "init", "-q", f"--object-format={digests}")
    shipped = code / part
    for folder in {code, shipped}:
        programs = {"train.py": "print('hello')\n", "run.sh": "#!/bin/sh\n", "gone.txt": "x"}
        settings = {".gitignore": "*.log\n", ".gitattributes": "*.txt text=auto eol=lf\n"}
        write_files(folder, programs | settings)
        (folder / "run.sh").chmod(0o755)
    git(code, "add", ".")
    git(code, "commit", "-qm", "first")
    change_all(shipped)
    store = store_in(tmp_path)
    record = recorded(store, job_with(shipped))
    git(tmp_path, "clone", "-q", str(code), "copy")
    copy = tmp_path / "copy"
    patch = store.patch(record.digest)
    subprocess.run(["git", "-C", str(copy), "apply", "-"], input=patch, check=True, capture_output=True)
    assert record.origin.dirty and len(record.files) == 9
    for name, file in record.files.items():
        there = copy / part / name
        if file.target is not None:
            assert os.readlink(there) == file.target  # noqa: PTH115
        else:
            assert there.read_bytes() == (shipped / name).read_bytes()
            assert os.access(there, os.X_OK) == (file.mode == "100755")
    assert not (copy / part / "gone.txt").exists()
    git(code, "status", "--porcelain")  # its index is whole


def test_the_origin_names_commit_branch_and_remote_without_credentials(
    checkout: Path, tmp_path: Path
) -> None:
    git(checkout, "checkout", "-qb", "wide")
    git(checkout, "remote", "add", "origin", "https://me:hunter2hunter2@example.org/a.git")
    store, secret = store_in(tmp_path), "tok-abcdef123456"
    origin = recorded(store, job_with(checkout)).origin
    assert (origin.branch, origin.dirty, len(origin.commit or "")) == ("wide", False, 40)
    assert (
        origin.remote is not None and "hunter2" not in origin.remote and "example.org/a.git" in origin.remote
    )
    (checkout / "train.py").write_text(f"key = {secret!r}\n")
    spec = replace(job_with(checkout), secrets=(Secret(name="KEY"),))
    dirty = kept(store, spec, {"KEY": secret})
    assert secret.encode() not in store.patch(dirty) and b"key = " in store.patch(dirty)
    git(checkout, "commit", "-qam", "second")
    assert kept(store, spec, {"KEY": secret}) == dirty
    record = store.record(dirty)
    assert record is not None and not record.origin.dirty  # the commit says more than the patch


def test_a_change_that_is_too_large_has_no_patch_and_is_shipped(checkout: Path, tmp_path: Path) -> None:
    (checkout / "big").write_bytes(os.urandom(5 << 20))
    store = store_in(tmp_path)
    record = recorded(store, job_with(checkout))
    assert record.origin.dirty and store.patch(record.digest) == b"" and "big" in record.files


def test_code_is_kept_while_a_run_may_need_it(code: Path, tmp_path: Path) -> None:
    def of_version(version: int, needed: Set[str] = frozenset()) -> str:
        (code / "train.py").write_text(f"{version}\n")
        return kept(store_in(tmp_path, needed), job_with(code))

    first, second = of_version(1), of_version(2)
    store = store_in(tmp_path)
    assert store.archive(first).exists() and store.archive(second).exists()  # their runs are to come
    for path in (tmp_path / "kept").iterdir():
        os.utime(path, (0, 0))
    of_version(3, needed={second})
    assert not store.archive(first).exists() and store.record(first) is None
    assert store.archive(second).exists() and store.record(second) is not None


def test_code_that_is_gone_is_one_clear_error(code: Path, tmp_path: Path) -> None:
    store = store_in(tmp_path)
    spec = replace(job_with(code), code_digest=kept(store, job_with(code)))
    store.archive(spec.code_digest or "").unlink()
    with pytest.raises(UsageError, match="as it was submitted is gone"):
        Bundler({}, codes=store).pack(run_of(spec), spec)


def test_changes_are_named_and_unknown_code_has_none(code: Path, tmp_path: Path) -> None:
    bundler = Bundler({}, codes=store_in(tmp_path))
    spec = bundler.keep_code(job_with(code))
    assert bundler.changed_code(spec) == []
    (code / "train.py").write_text("print('other')\n")
    (code / "new.py").write_text("x")
    (code / "run.sh").unlink()
    assert bundler.changed_code(spec) == ["new.py", "run.sh", "train.py"]
    assert bundler.changed_code(replace(spec, code_digest="0" * 64)) == []
    assert bundler.keep_code(spec) == spec


def test_a_digest_from_a_ledger_is_no_path() -> None:
    job = json.loads(run_of(SPEC).spec_json) | {"code_digest": "../../etc/passwd"}
    with pytest.raises(RecordError, match="code_digest"):
        read_job(json.dumps(job))
