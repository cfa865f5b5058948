"""Files of this computer as data: what is sent, under which checksum, and what ends it."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.jobs import command_job
from tests.launcher.bundle.bundles import files_of, git, run_of, shipped_code, write_files
from vastrun.contract import layout
from vastrun.contract.data_files import DataReceipt
from vastrun.launcher.bundle import Bundler
from vastrun.launcher.bundle.archive import CodeStore
from vastrun.launcher.bundle.local_data import LocalData, sized
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.job import Code, DataFile, JobSpec, Secret


@pytest.fixture
def spec(tmp_path: Path) -> JobSpec:
    """A job whose checkout ignores its data."""
    root = tmp_path / "code"
    write_files(root, {"data/a.bin": "a" * 100, "data/b/c.bin": "c" * 50, "data/b/same": "a" * 100})
    write_files(root, {"train.py": "print()\n", ".gitignore": "data/b\n"})
    git(root, "init", "-q")
    data = (DataFile(path=f"{root}/../code/data"),)
    return replace(command_job(), code=Code(path=str(root)), data=data)


def folder_of(spec: JobSpec) -> Path:
    return Path(spec.data[0].path or "").resolve()


def bundler_of(state: Path) -> Bundler:
    return Bundler({}, data=LocalData(state), codes=CodeStore(state / "codes", set))


def submitted(spec: JobSpec, state: Path) -> JobSpec:
    with bundler_of(state) as bundler:
        return bundler.keep_code(spec)


def sent(spec: JobSpec, state: Path) -> tuple[list[str], bytes]:
    """The lines of the list on the machine, and the first pack."""
    with bundler_of(state) as bundler:
        run = run_of(spec)
        lines = files_of(bundler.pack(run, spec))[layout.DATA_LIST].decode().splitlines()
        contents = bundler.data_contents(run, spec)
        assert contents is not None
        path, _ = bundler.pack_data(run, spec, DataReceipt(missing=tuple(range(len(contents.sizes)))))
        return lines, Path(path).read_bytes()


def test_each_content_is_sent_once_and_data_are_no_code(spec: JobSpec, tmp_path: Path) -> None:
    kept = submitted(spec, tmp_path / "state")
    assert kept.data_gb == kept.sent_gb == 250e-9
    lines, pack = sent(kept, tmp_path / "state")
    assert [line.split('"')[3] for line in lines] == [
        "data/a.bin",
        "data/b/c.bin",
        "data/b/same",
        "../code/data",
    ]
    assert pack == b"[[0, 0, 100], [1, 0, 50]]\n" + b"a" * 100 + b"c" * 50
    assert set(shipped_code(spec)) == {"train.py", ".gitignore"}


def change_without_a_trace(file: Path) -> None:
    before = file.stat()
    with file.open("r+") as opened:
        opened.write("b")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_second_launch_reads_no_file(spec: JobSpec, tmp_path: Path) -> None:
    kept = submitted(spec, tmp_path / "state")
    change_without_a_trace(folder_of(spec) / "a.bin")
    assert submitted(spec, tmp_path / "state") == kept
    assert submitted(spec, tmp_path / "other").data != kept.data


CHANGES: dict[str, Callable[[Path], object]] = {
    "another content": lambda file: file.write_text("b" * 100),
    "more": lambda file: file.write_text("a" * 101),
    "gone": lambda file: file.unlink(),
    "a pipe": lambda file: (file.unlink(), os.mkfifo(file)),
    "a link out": lambda file: (file.unlink(), file.symlink_to("/etc/hostname")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_file_that_changes_is_named(spec: JobSpec, tmp_path: Path, change: str) -> None:
    kept, file = submitted(spec, tmp_path / "state"), folder_of(spec) / "a.bin"
    everything = DataReceipt(missing=(0, 1))
    with bundler_of(tmp_path / "state") as bundler:
        assert bundler.data_contents(run_of(kept), kept) is not None
        CHANGES[change](file)
        with pytest.raises(UsageError, match=r"a\.bin"):
            bundler.pack_data(run_of(kept), kept, everything)
    for _ in range(2):
        with pytest.raises(UsageError, match=r"a\.bin"):
            sent(kept, tmp_path / "state")


def test_damage_on_the_machine_is_a_change_that_left_no_trace(spec: JobSpec, tmp_path: Path) -> None:
    kept, lacks = submitted(spec, tmp_path / "state"), DataReceipt(missing=(1,), damaged=1)
    with bundler_of(tmp_path / "state") as bundler:
        assert bundler.pack_data(run_of(kept), kept, lacks)[1] == 50
        change_without_a_trace(folder_of(spec) / "b" / "c.bin")
        with pytest.raises(UsageError, match=r"c\.bin changed while it was sent"):
            bundler.pack_data(run_of(kept), kept, lacks)


def test_credentials_and_secrets_stay_here_unless_an_entry_names_them(spec: JobSpec, tmp_path: Path) -> None:
    folder = folder_of(spec)
    (folder / ".env").write_text("TOKEN=1\n")
    (folder / "key").write_text("x")
    spec = replace(spec, secrets=(Secret(name="KEY", file=str(folder / "key")),))
    for state in (tmp_path / "state", tmp_path / "state"):
        kept = submitted(spec, state)
        with bundler_of(state) as bundler:
            contents = bundler.data_contents(run_of(kept), kept)
        assert contents is not None
        assert contents.withheld == (str(folder / ".env"), str(folder / "key"))
        assert len(contents.sizes) == 2
    named = submitted(replace(spec, data=(DataFile(path=str(folder / "key")),)), tmp_path / "state")
    assert named.sent_gb == 1e-9


def test_changed_or_missing_data_are_not_sent_for_a_job_that_was_submitted(
    spec: JobSpec, tmp_path: Path
) -> None:
    kept = submitted(spec, tmp_path / "state")
    (folder_of(spec) / "new").write_text("n")
    assert submitted(spec, tmp_path / "other").data[0].sha256 != kept.data[0].sha256
    with pytest.raises(UsageError, match="data/new changed since the job was submitted"):
        sent(kept, tmp_path / "state")
    (folder_of(spec) / "new").unlink()
    folder_of(spec).rename(tmp_path / "moved")
    with pytest.raises(UsageError, match=r"no file or folder .*code/data on this computer"):
        sent(kept, tmp_path / "state")
    with pytest.raises(UsageError, match="no file or folder"):
        sized(spec)


def test_data_that_do_not_fit_on_the_disk_are_refused_before_anything_is_rented(
    spec: JobSpec, tmp_path: Path
) -> None:
    with (folder_of(spec) / "large").open("wb") as file:
        file.truncate(50 * 10**9)
    with bundler_of(tmp_path / "s") as bundler, pytest.raises(UsageError, match="needs 50 GB, but resources"):
        bundler.check(spec)
