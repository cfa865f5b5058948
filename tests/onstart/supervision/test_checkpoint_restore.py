"""The newest intact checkpoint of a program is put back to its place, on this machine or the next."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.onstart.supervision.launches import job_of
from tests.onstart.supervision.own_files import Watching, Writer, dcp_like, hugging_face_like
from tests.waiting import eventually
from vastrun.contract import layout
from vastrun.contract.checkpoint_folder import DamagedError, Manifest, checksum_file, newest_first
from vastrun.contract.job import Job
from vastrun.onstart.supervision.checkpoint_restore import ProgramCheckpoints, move_aside
from vastrun.onstart.supervision.program_files import note_files

pytestmark = pytest.mark.torch


@pytest.fixture
def watching(tmp_path: Path) -> Watching:
    return Watching(box=tmp_path / "box")


def test_a_checkpoint_is_kept_while_its_program_runs(watching: Watching) -> None:
    said: list[str] = []
    job = job_of(checkpoints={"files": "checkpoints/*", "every_s": 1.0})
    (watching.box / layout.JOB).write_text(json.dumps(job))
    checkpoints = ProgramCheckpoints.of(watching.box, Job.read(watching.box), said.append)
    with checkpoints.watching():
        hugging_face_like(watching.path("checkpoints/checkpoint-5"), "saved")
        assert eventually(lambda: watching.taken() == ["step-000005"]), said


def on_the_next_machine(watching: Watching) -> Watching:
    """Another box whose job came with what the first one kept."""
    box = watching.box.with_name("next")
    box.mkdir()
    (watching.box / layout.CHECKPOINTS).rename(box / layout.RESUME)
    return Watching(box=box, pattern=watching.pattern)


def test_a_program_that_saves_among_its_outputs_finds_its_checkpoint_there(tmp_path: Path) -> None:
    watching = Watching(box=tmp_path / "box", pattern="$VASTRUN_OUTPUTS/checkpoint-*")
    (watching.box / layout.OUTPUTS).mkdir(parents=True)
    hugging_face_like(watching.box / layout.OUTPUTS / "checkpoint-10", "first")
    watching.poll(2)
    after = on_the_next_machine(watching)
    assert after.restore() == "run/outputs/checkpoint-10"


def test_a_fresh_start_has_nothing_to_continue_from(watching: Watching) -> None:
    assert watching.restore() == ""


def test_a_file_is_back_at_its_place_on_the_next_machine(watching: Watching) -> None:
    watching.path("checkpoints/step_500.pkl").write_bytes(b"weights")
    watching.poll(2)
    after = on_the_next_machine(watching)
    assert after.restore() == "code/checkpoints/step_500.pkl"
    assert after.path("checkpoints/step_500.pkl").read_bytes() == b"weights"
    after.watcher.begin()
    after.path("checkpoints/step_20.pkl").write_bytes(b"newer")
    after.poll(2)
    assert after.taken() == ["step-000501"]


@pytest.mark.parametrize("save", [hugging_face_like, dcp_like])
def test_a_folder_is_back_at_its_place_with_all_its_files(
    save: Callable[..., None], watching: Watching
) -> None:
    save(watching.path("checkpoints/checkpoint-10"), "first")
    watching.poll(2)
    names = sorted(path.name for path in watching.path("checkpoints/checkpoint-10").iterdir())
    after = on_the_next_machine(watching)
    assert after.restore() == "code/checkpoints/checkpoint-10"
    assert sorted(path.name for path in after.path("checkpoints/checkpoint-10").iterdir()) == names


def test_a_program_may_write_to_its_restored_folder_whatever_the_rights_of_the_kept_files(
    watching: Watching,
) -> None:
    hugging_face_like(watching.path("checkpoints/checkpoint-5"), "saved")
    watching.poll(2)
    after = on_the_next_machine(watching)
    for path in (after.box / layout.RESUME).rglob("*"):
        if path.is_file():
            path.chmod(0o444)

    assert after.restore() == "code/checkpoints/checkpoint-5"

    restored = [path for path in after.path("checkpoints/checkpoint-5").rglob("*") if path.is_file()]
    assert restored and all(path.stat().st_mode & 0o200 for path in restored)


def test_on_the_same_machine_a_checkpoint_that_is_still_there_is_left_as_it_is(watching: Watching) -> None:
    path = watching.path("checkpoints/step_1.pkl")
    path.write_bytes(b"weights")
    watching.poll(2)
    inode = path.stat().st_ino
    assert watching.restore() == "code/checkpoints/step_1.pkl"
    assert path.stat().st_ino == inode


def test_a_file_that_was_overwritten_halfway_comes_back_whole_and_the_half_one_is_kept_aside(
    watching: Watching,
) -> None:
    path = watching.path("checkpoints/last.pkl")
    path.write_bytes(b"weights")
    watching.poll(2)
    Writer(path).kill()
    watching.watcher.final_poll(ended_well=False)
    assert watching.restore() == "code/checkpoints/last.pkl"
    assert path.read_bytes() == b"weights"
    assert (watching.box / "tmp/incomplete/checkpoints/last.pkl").read_bytes() == b"half"


def test_an_incomplete_file_is_moved_away_so_that_the_program_does_not_load_it(watching: Watching) -> None:
    watching.path("checkpoints/step_1.pkl").write_bytes(b"weights")
    watching.poll(2)
    Writer(watching.path("checkpoints/step_2.pkl")).kill()
    watching.watcher.final_poll(ended_well=False)
    move_aside(watching.watcher.incomplete, watching.code, watching.box, watching.said.append)
    assert watching.restore() == "code/checkpoints/step_1.pkl"
    assert [path.name for path in watching.path("checkpoints").iterdir()] == ["step_1.pkl"]
    assert watching.said[-2:] == [
        "checkpoints/step_2.pkl is not the complete checkpoint; it was moved to "
        "tmp/incomplete/checkpoints/step_2.pkl",
        "checkpoint step-000001 is restored: VASTRUN_RESUME=code/checkpoints/step_1.pkl",
    ]


def test_all_that_is_incomplete_is_moved_aside(watching: Watching) -> None:
    names = ["checkpoints/step_2.pkl", "checkpoints/step_3.pkl"]
    for name in names:
        watching.path(name).write_bytes(b"half")
    move_aside(names, watching.code, watching.box, watching.said.append)
    assert not list(watching.path("checkpoints").iterdir())
    assert all((watching.box / "tmp/incomplete" / name).is_file() for name in names)


def test_of_a_damaged_checkpoint_and_an_older_one_the_older_is_restored(watching: Watching) -> None:
    for step in (1, 2):
        watching.path(f"checkpoints/step_{step}.pkl").write_bytes(b"weights")
        watching.poll(2)
    after = on_the_next_machine(watching)
    (after.box / "resume/step-000002/files/checkpoints/step_2.pkl").write_bytes(b"garbage")
    assert after.restore() == "code/checkpoints/step_1.pkl"
    assert "step-000002 is damaged and is skipped" in after.said[0]


def test_when_no_checkpoint_is_intact_nothing_starts_afresh_in_silence(watching: Watching) -> None:
    watching.path("checkpoints/step_1.pkl").write_bytes(b"weights")
    watching.poll(2)
    after = on_the_next_machine(watching)
    (after.box / "resume/step-000001/files/checkpoints/step_1.pkl").write_bytes(b"garbage")
    with pytest.raises(DamagedError, match="none of 1 checkpoint"):
        after.restore()


def from_a_stranger(box: Path, name: str, *files: str) -> None:
    """A checkpoint that is intact by its own manifest; `files`: of it, by default one of that name."""
    checkpoint = box / layout.RESUME / "step-000001"
    for file in files or (f"files/{name}",):
        (checkpoint / file).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / file).write_text("theirs")
    (checkpoint / "state.json").write_text(json.dumps({"program": {"path": name}}))
    sums = [
        (file, checksum_file(checkpoint / file)) for file in (*(files or (f"files/{name}",)), "state.json")
    ]
    listed = [{"path": file, "size": found.size, "sha256": found.sha256} for file, found in sums]
    (checkpoint / "manifest.json").write_text(json.dumps({"step": 1, "files": listed}))


def note_shipped(watching: Watching) -> None:
    """Note the files of the code folder, as before a program starts; what follows is younger."""
    job = job_of(checkpoints={"files": watching.pattern})
    (watching.box / layout.JOB).write_text(json.dumps(job))
    note_files(watching.box, Job.read(watching.box))
    noted = watching.box / layout.FILES_BEFORE
    after = noted.stat().st_mtime_ns + 1
    assert eventually(lambda: (noted.touch(), noted.stat().st_mtime_ns)[1] > after)
    os.utime(noted, ns=(after, after))


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("$(touch ran).pkl", "__touch_ran_.pkl"),
        ("a b\n`c`;'d'.pkl", "a_b__c___d_.pkl"),
        ("-rf *.pkl", "_rf__.pkl"),
        ("epoch=3-step=7.pkl", "epoch=3-step=7.pkl"),
    ],
)
def test_a_path_is_handed_on_in_plain_characters(name: str, plain: str, watching: Watching) -> None:
    from_a_stranger(watching.box, f"checkpoints/{name}")
    for _ in range(2):
        assert watching.restore() == f"code/checkpoints/{plain}"
        assert watching.path(f"checkpoints/{plain}").read_text() == "theirs"
    assert [path.name for path in watching.path("checkpoints").iterdir()] == [plain]
    assert any("a shell could run its name" in said for said in watching.said) == (name != plain)


def test_a_folder_of_an_odd_name_keeps_the_names_of_its_files(watching: Watching) -> None:
    hugging_face_like(watching.path("checkpoints/best (1)"), "saved")
    watching.poll(8)
    after = on_the_next_machine(watching)
    assert after.restore() == "code/checkpoints/best__1_"
    assert after.path("checkpoints/best__1_/optimizer.pt").read_text() == "saved"


def test_a_name_that_is_neither_plain_nor_a_checkpoints_is_not_handed_on(watching: Watching) -> None:
    from_a_stranger(watching.box, "elsewhere/$(touch ran)")
    with pytest.raises(DamagedError):
        watching.restore()
    assert "its name is not plain" in watching.said[0]


@pytest.mark.parametrize(
    ("pattern", "name", "file"),
    [
        ("*", "train.py", ""),
        ("*", "Makefile", ""),
        ("*", "shipped.pkl", ""),
        ("*", "configs", "/new.pkl"),
        ("*", "link", ""),
        ("*", "torch.py", ""),
        ("*", "torch.cpython-311-x86_64-linux-gnu.so", ""),
        ("*", "torch", "/__init__.py"),
        ("**/*", "Makefile/step_1.pkl", ""),
        ("**/*", "__pycache__/train.cpython-311.pyc", ""),
        ("*", "__pycache__", "/train.cpython-311.pyc"),
        ("**/*", ".git/config", ""),
    ],
)
def test_a_machine_replaces_no_file_that_was_shipped_and_adds_none_that_is_run(
    pattern: str, name: str, file: str, tmp_path: Path
) -> None:
    watching = Watching(box=tmp_path / "box", pattern=pattern)
    for own in ("train.py", "Makefile", "shipped.pkl", "configs/base.yaml"):
        watching.path(own).write_text("ours")
    watching.path("link").symlink_to("Makefile")
    note_shipped(watching)
    before = sorted(watching.code.rglob("*"))
    from_a_stranger(watching.box, name, f"files/{name}{file}")
    for _ in range(2):
        assert watching.restore() == f"resume/step-000001/files/{name}"
    assert sorted(watching.code.rglob("*")) == before
    assert all(path.read_text() == "ours" for path in before if path.is_file())
    assert "it is left where it is" in watching.said[0]


def test_a_dot_that_is_no_name_does_not_become_one_that_python_runs(tmp_path: Path) -> None:
    watching = Watching(box=tmp_path / "box", pattern="*")
    from_a_stranger(watching.box, "$_pycache__", "files/$_pycache__/train.cpython-311.pyc")
    with pytest.raises(DamagedError):
        watching.restore()
    assert not list(watching.code.iterdir())


def test_a_wide_pattern_restores_over_what_the_program_itself_wrote(tmp_path: Path) -> None:
    watching = Watching(box=tmp_path / "box", pattern="*")
    watching.path("train.py").write_text("ours")
    note_shipped(watching)
    path = watching.path("last.pkl")
    path.write_bytes(b"weights")
    watching.poll(2)
    path.write_bytes(b"half")
    assert watching.restore() == "code/last.pkl"
    assert path.read_bytes() == b"weights"


def test_a_job_that_names_the_very_file_gets_it_back_where_it_was_shipped(tmp_path: Path) -> None:
    watching = Watching(box=tmp_path / "box", pattern="seed.pkl")
    watching.path("seed.pkl").write_text("ours")
    note_shipped(watching)
    from_a_stranger(watching.box, "seed.pkl")
    assert watching.restore() == "code/seed.pkl"
    assert watching.path("seed.pkl").read_text() == "theirs"


@pytest.mark.parametrize("place", ["train.py", "../outside.pkl", "/tmp/outside.pkl"])
def test_a_checkpoint_from_a_strangers_machine_writes_nowhere_but_where_checkpoints_go(
    place: str, watching: Watching
) -> None:
    watching.path("train.py").write_text("print('ours')")
    from_a_stranger(watching.box, place, "files/train.py")
    assert watching.restore().startswith("resume/step-000001")
    assert watching.path("train.py").read_text() == "print('ours')"
    assert not (watching.box / "outside.pkl").exists()


def test_a_checkpoint_that_the_program_did_not_save_is_named_where_it_lies(watching: Watching) -> None:
    checkpoint = watching.box / layout.RESUME / "step-000007"
    checkpoint.mkdir(parents=True)
    (checkpoint / "state").write_bytes(b"weights")
    found = checksum_file(checkpoint / "state")
    manifest = Manifest(step=7, files=(found,))
    files = [{"path": found.path, "size": found.size, "sha256": found.sha256}]
    (checkpoint / "manifest.json").write_text(json.dumps({"step": manifest.step, "files": files}))
    assert newest_first(watching.box / layout.RESUME) == [checkpoint]
    assert watching.restore() == "resume/step-000007"
