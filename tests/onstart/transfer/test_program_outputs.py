"""What a user's program wrote beside its named outputs: found, limited, and told from what was there."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.onstart.supervision.launches import job_of
from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.onstart.supervision.program_files import FilesBefore, ProgramFileSearch, note_files
from vastrun.onstart.supervision.snapshots import Snapshots
from vastrun.onstart.transfer import manifest
from vastrun.onstart.transfer.manifest import DownloadList, LeftOut


class Program:
    """A program in a box, which is started and writes files."""

    def __init__(self, box: Path, **job: Any) -> None:
        self.box = box
        self.code = box / layout.CODE
        self.code.mkdir(parents=True, exist_ok=True)
        (box / layout.OUTPUTS).mkdir(parents=True, exist_ok=True)
        (box / layout.JOB).write_text(json.dumps(job_of(**job)))

    def start(self) -> None:
        note_files(self.box, Job.read(self.box))
        _later_than(self.box / layout.FILES_BEFORE)

    def write(self, name: str, size: int = 1) -> Path:
        path = self.code / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
        return path

    def downloaded(self) -> list[str]:
        return paths_of(manifest.build_listing(self.box))

    def left_out(self) -> dict[str, LeftOut]:
        return {each.path: each for each in manifest.build_listing(self.box).omitted()}


def started(box: Path, **job: Any) -> Program:
    program = Program(box, **job)
    program.start()
    return program


def paths_of(listing: DownloadList) -> list[str]:
    """The files to download, in the order in which the launcher reads them."""
    written: Any = listing.to_json()
    return [file["path"] for file in written["files"]]


def _later_than(path: Path) -> None:
    """Return once the disk's clock is past the file's time."""
    probe = path.with_name("probe")
    while True:
        probe.write_bytes(b"")
        if probe.stat().st_ctime_ns > path.stat().st_mtime_ns:
            break
        time.sleep(0.001)
    probe.unlink()


@pytest.fixture
def box(tmp_path: Path) -> Path:
    return tmp_path / "box"


def test_without_outputs_everything_that_the_program_wrote_is_downloaded(box: Path) -> None:
    program = Program(box)
    program.write("train.py")
    program.write("config.json", 2)
    program.start()
    program.write("checkpoints/step_10.pt", 100)
    program.write("config.json", 3)
    program.write("log.txt")
    assert program.downloaded() == ["code/checkpoints/step_10.pt", "code/config.json", "code/log.txt"]
    assert program.left_out() == {}


def test_a_file_that_was_copied_with_its_old_time_counts_as_written(box: Path) -> None:
    program = started(box)
    os.utime(program.write("copy.pt"), (1, 1))
    assert program.downloaded() == ["code/copy.pt"]


def test_caches_and_virtual_environments_are_not_downloaded(box: Path) -> None:
    program = started(box, env={"HF_HOME": "hub"})
    for name in (
        *("__pycache__/a.pyc", ".git/HEAD", ".cache/x", "a/.ipynb_checkpoints/b.ipynb", "b.pyc"),
        *(
            "node_modules/m.js",
            "my/pyvenv.cfg",
            "my/lib/torch.bin",
            "hub/models/w.bin",
            "models--org--x/w.bin",
        ),
        *("torchinductor_root/k.py", ".pytest_cache/v"),
    ):
        program.write(name)
    program.write("result.csv")
    assert program.downloaded() == ["code/result.csv"]
    assert program.left_out() == {}


def test_of_more_than_outputs_gb_the_smallest_files_are_downloaded(box: Path) -> None:
    program = started(box, outputs_gb=0.000_01)
    program.write("a.pt", 8_000)
    program.write("log.txt", 100)
    program.write("metrics.csv", 3_000)
    assert program.downloaded() == ["code/log.txt", "code/metrics.csv"]
    assert program.left_out() == {
        "code/a.pt": LeftOut(path="code/a.pt", why="outputs_gb is 1e-05", size=8_000, named=False)
    }


def test_what_is_in_the_folder_for_outputs_has_no_limit_in_gb(box: Path) -> None:
    program = started(box, outputs_gb=0)
    (box / layout.OUTPUTS / "model.pt").write_bytes(b"w" * 10)
    assert program.downloaded() == ["run/outputs/model.pt"]


def test_with_outputs_the_rest_that_was_written_is_left_out(box: Path) -> None:
    program = started(box, outputs=["results/*"])
    program.write("results/a.csv")
    program.write("checkpoints/small.pt", 10)
    program.write("checkpoints/w.pt", 2_000_000)
    program.write("huge.log", 3_000_000)
    assert program.downloaded() == ["code/results/a.csv"]
    # What looks like weights comes first, then the largest.
    assert [(each.path, each.size, each.named) for each in program.left_out().values()] == [
        ("code/checkpoints/w.pt", 2_000_000, False),
        ("code/huge.log", 3_000_000, False),
        ("code/checkpoints/small.pt", 10, False),
    ]


def test_an_excluded_file_is_neither_downloaded_nor_listed(box: Path) -> None:
    program = started(box, outputs=["results/*", "!results/*.tmp", "!scratch"])
    for name in ("results/a.csv", "results/b.tmp", "scratch/deep/w.pt"):
        program.write(name)
    assert program.downloaded() == ["code/results/a.csv"]
    assert program.left_out() == {}


def test_exclusions_alone_leave_everything_else(box: Path) -> None:
    program = started(box, outputs=["!scratch/*"])
    program.write("scratch/w.pt")
    program.write("a.csv")
    assert program.downloaded() == ["code/a.csv"]


def test_a_pattern_that_matches_nothing_is_reported(box: Path) -> None:
    program = started(box, outputs=["resluts/*"])
    assert program.left_out() == {"resluts/*": LeftOut(path="resluts/*", why="no file matches")}


def test_weights_behind_a_link_to_another_disk_are_downloaded(box: Path, tmp_path: Path) -> None:
    (disk := tmp_path / "disk").mkdir()
    (disk / "old.bin").write_bytes(b"a data set")
    program = Program(box)
    (program.code / "weights").symlink_to(disk)
    program.start()
    (disk / "new.pt").write_bytes(b"w")
    (disk / "single.pt").write_bytes(b"w")
    (program.code / "last.pt").symlink_to(disk / "single.pt")
    (box / layout.OUTPUTS / "more").symlink_to(disk)
    assert program.downloaded() == [
        *("code/last.pt", "code/weights/new.pt", "code/weights/single.pt"),
        *("run/outputs/more/new.pt", "run/outputs/more/single.pt"),
    ]
    assert program.left_out() == {}


def test_a_link_within_the_folder_is_no_second_file(box: Path) -> None:
    program = started(box)
    program.write("step_10.pt")
    (program.code / "newest.pt").symlink_to("step_10.pt")
    (program.code / "up").symlink_to("..")
    assert program.downloaded() == ["code/step_10.pt"]


def test_a_link_to_a_file_that_was_there_before_is_not_followed(box: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    program = started(box)
    (program.code / "leak").symlink_to(tmp_path / "secret")
    (box / layout.OUTPUTS / "leak").symlink_to(tmp_path / "secret")
    assert program.downloaded() == []
    assert list(program.left_out()) == ["run/outputs/leak"]


def test_checkpoints_of_the_newest_snapshot_are_not_downloaded_twice(box: Path) -> None:
    program = Program(box, checkpoints={"files": "checkpoints/*.pt"})
    job = Job.read(box)
    assert job.checkpoints is not None
    program.start()
    snapshots = Snapshots(box=box, job=job, settings=job.checkpoints, say=lambda _text: None)
    snapshots.begin()
    for name in ("step_1.pt", "step_2.pt", "step_3.pt", "notes.json"):
        program.write(f"checkpoints/{name}")
    snapshots.final_poll(ended_well=True)
    files = program.downloaded()
    assert [path for path in files if path.startswith("code/")] == ["code/checkpoints/notes.json"]
    stored = [path.rpartition("/")[2] for path in files if "/files/" in path]
    assert stored == ["notes.json", "step_2.pt", "step_3.pt"]
    assert program.left_out() == {}


def test_where_no_checkpoint_was_taken_the_files_are_outputs(box: Path) -> None:
    program = started(box, checkpoints={"files": "checkpoints/*"})
    program.write("checkpoints/step_1.pt")
    assert program.downloaded() == ["code/checkpoints/step_1.pt"]


def test_of_the_onboard_trainer_nothing_in_the_code_folder_is_downloaded(box: Path) -> None:
    program = started(box, command=None, train={"steps": 1})
    program.write("x.pt")
    assert program.downloaded() == []


def test_a_search_looks_at_a_limited_number_of_files(box: Path) -> None:
    program = started(box)
    for number in range(20):
        program.write(f"{number:02}.txt")
    before = FilesBefore.read(box)
    assert before is not None
    search = ProgramFileSearch(box=box, job=Job.read(box), before=before, max_entries=5)
    assert (len(list(search.below(layout.CODE))), search.cut) == (5, [box / layout.CODE])


def test_of_a_folder_with_more_files_than_are_noted_times_tell_what_is_new(box: Path) -> None:
    program = Program(box)
    program.write("data.bin")
    program.start()
    record = json.loads((box / layout.FILES_BEFORE).read_text())
    at_ns = (box / layout.FILES_BEFORE).stat().st_mtime_ns
    (box / layout.FILES_BEFORE).write_text(json.dumps(record | {"files": {}, "is_cut": True}))
    os.utime(box / layout.FILES_BEFORE, ns=(at_ns, at_ns))
    program.write("new.pt")
    assert program.downloaded() == ["code/new.pt"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"files": []}', '{"files": {"a": 1}, "is_cut": 0}'])
def test_a_record_that_is_none_finds_nothing(box: Path, content: str) -> None:
    program = started(box)
    program.write("x.pt")
    (box / layout.FILES_BEFORE).write_text(content)
    assert program.downloaded() == []


@pytest.mark.parametrize(("provider", "is_found"), [("vast", True), ("docker", True), ("local", False)])
def test_weights_outside_of_the_box_are_found_on_a_machine_of_the_run_alone(
    provider: str, is_found: bool, box: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("VASTRUN_PROVIDER", provider)
    (home / "of_the_image.bin").write_bytes(bytes(2_000_000))
    program = started(box, outputs_gb=0.004)
    for name, size in (("out/model.pt", 3_000_000), ("out/large.pt", 5_000_000), ("note.txt", 10)):
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_bytes(bytes(size))
    (home / ".cache").mkdir()
    (home / ".cache/hub.bin").write_bytes(bytes(2_000_000))
    start = f"run/outputs/elsewhere{home}/out"
    for _ in range(2):
        assert program.downloaded() == ([f"{start}/model.pt"] if is_found else [])
        assert list(program.left_out()) == ([f"{start}/large.pt"] if is_found else [])
