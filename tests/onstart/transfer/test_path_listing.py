"""The files of one path, as a launcher asks for them: only those of the program."""

import json
import sys
from pathlib import Path

import pytest

from tests.onstart.transfer.test_program_outputs import Program, paths_of
from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.onstart.transfer import path_listing as list_path
from vastrun.onstart.transfer.manifest import DownloadList


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path / "box", outputs=["results/*"])
    program.write("data.bin")
    program.start()
    program.write("w/a.pt", 3)
    program.write("w/deep/b.pt", 4)
    program.write("results/r.csv")
    (program.box / layout.OUTPUTS / "o.txt").write_text("o")
    return program


def listed(program: Program, path: str | None) -> DownloadList:
    return list_path.list_path(program.box, Job.read(program.box), path)


def paths(program: Program, path: str | None) -> list[str]:
    return paths_of(listed(program, path))


@pytest.mark.parametrize("path", ["w", "w/", "./w", "code/w", "x/../w"])
def test_a_folder_is_named_from_the_code_folder_or_the_box(program: Program, path: str) -> None:
    assert paths(program, path) == ["code/w/a.pt", "code/w/deep/b.pt"]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("w/a.pt", "code/w/a.pt"),
        ("data.bin", "code/data.bin"),
        ("o.txt", "run/outputs/o.txt"),
        ("run/outputs/o.txt", "run/outputs/o.txt"),
    ],
)
def test_a_file_is_listed_with_its_checksum(program: Program, path: str, found: str) -> None:
    (file,) = listed(program, path).files
    assert file.path == found
    assert file.sha256 != "0" * 64


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../job.json", "job.json", "code/../job.json", "run/run.log", "none", "..", "a\0b"],
)
def test_a_path_outside_of_the_programs_folders_is_refused(program: Program, path: str) -> None:
    (program.box / "run" / "run.log").write_text("log")
    listing = listed(program, path)
    assert listing.files == []
    assert [each.why for each in listing.omitted()] == ["no such file in the code folder or the outputs"]


def test_behind_a_link_only_what_the_program_wrote_is_listed(program: Program, tmp_path: Path) -> None:
    (tmp_path / "passwd").write_text("secret")
    (disk := tmp_path / "disk").mkdir()
    program.start()
    (disk / "w.pt").write_bytes(b"w")
    (program.code / "leak").symlink_to(tmp_path / "passwd")
    (program.code / "disk").symlink_to(disk)
    (program.code / "up").symlink_to(tmp_path)
    assert paths(program, "disk") == ["code/disk/w.pt"]
    assert paths(program, "leak") == []
    assert paths(program, "up/passwd") == []


def test_without_a_path_all_is_listed_that_the_manifest_leaves_out(program: Program) -> None:
    assert paths(program, None) == ["code/w/a.pt", "code/w/deep/b.pt"]


def test_the_list_is_where_the_launcher_reads_it(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VASTRUN_BOX", str(program.box))
    monkeypatch.setattr(sys, "argv", ["chosen", "pull/1.json", "w/a.pt"])
    assert list_path.main() == 0
    found = json.loads((program.box / "pull" / "1.json").read_text())
    assert [file["path"] for file in found["files"]] == ["code/w/a.pt"]
