"""The newest intact snapshot of a program is put back; a stranger's adds no code and replaces no file."""

import json
import os
from pathlib import Path

import pytest

from tests.onstart.supervision.own_files import Watching, Writer
from tests.waiting import eventually
from vastrun.contract import layout
from vastrun.contract.checkpoint_folder import DamagedError, checksum_file, newest_first

pytestmark = pytest.mark.torch


@pytest.fixture
def watching(tmp_path: Path) -> Watching:
    return Watching(box=tmp_path / "box", shipped=("train.py",))


def test_a_snapshot_is_taken_while_its_program_runs(tmp_path: Path) -> None:
    watching = Watching(box=tmp_path / "box", every_s=0.1)
    with watching.program.watching():
        watching.save("checkpoints/step_5.pkl")
        assert eventually(lambda: watching.taken() == ["step-000005"]), watching.said


def test_the_whole_folder_is_back_on_the_next_machine_with_times_modes_and_empty_folders(
    watching: Watching,
) -> None:
    watching.save("checkpoints/global_step4/zero_0.pt").chmod(0o440)
    watching.save("checkpoints/latest", b"global_step4")
    watching.path("samples/empty/x").parent.mkdir(parents=True, exist_ok=True)
    watching.poll()
    before, files = watching.path("checkpoints/latest").stat(), watching.files()
    after = watching.next_machine()
    assert after.restore() == "code/checkpoints/global_step4"
    assert after.files() == files
    now = after.path("checkpoints/latest").stat()
    assert now.st_mtime == pytest.approx(before.st_mtime, abs=1e-5)
    assert after.path("checkpoints/global_step4/zero_0.pt").stat().st_mode & 0o777 == 0o440
    assert after.path("samples/empty").is_dir()
    assert f"snapshot {newest_first(after.box / layout.RESUME)[0].name} is restored: 2 files" in after.said[0]
    after.save_and_poll("checkpoints/global_step5/zero_0.pt")
    assert after.taken() == [], "the restored one is new enough for as long as any other"
    after.poll()
    assert after.taken() == ["step-000005"]


def test_a_program_that_saves_among_its_outputs_finds_its_files_there(tmp_path: Path) -> None:
    watching = Watching(box=tmp_path / "box", pattern="$VASTRUN_OUTPUTS/checkpoint-*")
    (watching.box / layout.OUTPUTS).mkdir(parents=True)
    watching.save_and_poll(f"../{layout.OUTPUTS}/checkpoint-10/model.safetensors")
    assert watching.next_machine().restore() == "run/outputs/checkpoint-10"


def test_a_program_that_was_killed_in_a_save_begins_at_the_moment_before_it(watching: Watching) -> None:
    watching.restore()
    watching.save_and_poll("checkpoints/last.pkl")
    before = watching.files()
    writers = [Writer(watching.path(f"checkpoints/{name}.pkl")) for name in ("last", "step_2")]
    watching.poll(is_due=False)
    for writer in writers:
        writer.kill()
    watching.watcher.final_poll(ended_well=False, was_killed=True)
    assert watching.restore() == "code/checkpoints/last.pkl"
    assert watching.files() == before
    assert (watching.box / "tmp/incomplete/code/checkpoints/last.pkl").read_bytes() == b"half"
    assert any("code/checkpoints/step_2.pkl was moved to tmp/incomplete" in said for said in watching.said)


def test_a_program_that_was_killed_between_two_saves_finds_what_it_left(watching: Watching) -> None:
    watching.restore()
    watching.save_and_poll("checkpoints/step_1.pkl")
    watching.save("checkpoints/step_2.pkl", age_s=5.0)
    watching.poll(is_due=False)
    inode = watching.path("checkpoints/step_2.pkl").stat().st_ino
    watching.watcher.final_poll(ended_well=False, was_killed=True)
    assert watching.restore() == "code/checkpoints/step_2.pkl"
    assert watching.path("checkpoints/step_2.pkl").stat().st_ino == inode
    assert watching.taken() == ["step-000002", "step-000001"]


def test_half_a_file_is_moved_aside_where_there_is_no_snapshot(watching: Watching) -> None:
    assert watching.restore() == "", "a fresh start"
    Writer(watching.path("checkpoints/step_1.pkl")).kill()
    watching.watcher.final_poll(ended_well=False, was_killed=True)
    assert watching.restore() == ""
    assert set(watching.files()) == {"train.py"}


def test_after_a_start_that_saved_nothing_the_whole_folder_is_put_back(watching: Watching) -> None:
    watching.restore()
    watching.save("checkpoints/step_1.pkl")
    watching.path("train.log").write_bytes(b"step 1\n")
    os.utime(watching.path("train.log"), (1.7e9, 1.7e9))
    watching.poll()
    watching.path("checkpoints/step_2.pkl").write_bytes(bytes(200))
    watching.watcher.final_poll(ended_well=False)
    assert watching.restore() == "code/checkpoints/step_2.pkl"
    with watching.path("train.log").open("ab") as log:
        log.write(b"cannot read step 2\n")
    watching.watcher.final_poll(ended_well=False)
    assert watching.restore() == "code/checkpoints/step_1.pkl"
    assert "checkpoints/step_2.pkl" not in watching.files()
    assert watching.path("train.log").read_bytes() == b"step 1\ncannot read step 2\n"


def test_of_a_damaged_snapshot_and_an_older_one_the_older_is_restored(watching: Watching) -> None:
    for step in (1, 2):
        watching.save_and_poll(f"checkpoints/step_{step}.pkl")
    after = watching.next_machine()
    stored = after.box / "resume/step-000002/files/code/checkpoints/step_2.pkl"
    stored.unlink()
    stored.write_bytes(b"garbage")
    assert after.restore() == "code/checkpoints/step_1.pkl"
    assert "step-000002 is damaged and is skipped" in after.said[0]


def test_when_no_snapshot_is_intact_nothing_starts_afresh_in_silence(watching: Watching) -> None:
    watching.save_and_poll("checkpoints/step_1.pkl")
    after = watching.next_machine()
    (after.box / "resume/step-000001/files/code/checkpoints/step_1.pkl").write_bytes(b"garbage")
    with pytest.raises(DamagedError, match="none of 1 checkpoint"):
        after.restore()


def from_a_stranger(box: Path, *names: str, **state: object) -> None:
    """A snapshot that is intact by its own manifest, with these files of the box."""
    snapshot = box / layout.RESUME / "step-000001"
    files = [f"files/{name}" for name in names]
    for file in files:
        (snapshot / file).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / file).write_text("theirs")
    snapshot.mkdir(parents=True, exist_ok=True)
    (snapshot / "state.json").write_text(json.dumps(state))
    sums = [(file, checksum_file(snapshot / file)) for file in (*files, "state.json")]
    listed = [{"path": file, "size": found.size, "sha256": found.sha256} for file, found in sums]
    (snapshot / "manifest.json").write_text(json.dumps({"step": 1, "files": listed}))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("code/train.py", "a name of code"),
        ("code/Makefile", "it came with the job"),
        ("code/link", "it came with the job"),
        ("code/Makefile/step_1.pkl", "a file is in the place of its folder"),
        ("code/out/step_1.pkl", "it leads out"),
        ("code/torch.py", "a name of code"),
        ("code/torch.cpython-311-x86_64-linux-gnu.so", "a name of code"),
        ("code/torch/__init__.py", "a name of code"),
        ("code/__pycache__/train.cpython-311.pyc", "a name of code"),
        ("code/setup.sh", "a name of code"),
        ("code/.git/config", "a name of version control"),
        ("run/outputs/helpers/__init__.py", "a name of code"),
        ("run/manifest.json", "it leads out"),
        ("job.json", "it leads out"),
        ("onstart/step.sh", "it leads out"),
    ],
)
def test_a_machine_replaces_no_file_that_came_with_the_job_and_adds_none_that_is_run(
    name: str, why: str, tmp_path: Path
) -> None:
    watching = Watching(box=tmp_path / "box", pattern=None, shipped=("train.py", "Makefile"))
    watching.path("link").symlink_to("Makefile")
    watching.path("out").symlink_to(tmp_path)
    from_a_stranger(watching.box, name, "code/step_1.pkl")
    for _ in range(2):
        watching.restore()
        assert watching.files() == {
            "train.py": b"ours",
            "Makefile": b"ours",
            "link": b"ours",
            "step_1.pkl": b"theirs",
        }
    assert f"snapshot: {name} not restored: {why}" in watching.said[0]
    assert not (tmp_path / "step_1.pkl").exists()


def test_a_model_whose_folder_is_no_module_is_restored_with_its_code(watching: Watching) -> None:
    from_a_stranger(watching.box, "code/out/checkpoint-500/modeling.py")
    watching.restore()
    assert "out/checkpoint-500/modeling.py" in watching.files()


@pytest.mark.parametrize("name", ["code/../../outside", "/tmp/outside"])
def test_a_snapshot_with_a_path_that_leads_out_is_damaged(name: str, watching: Watching) -> None:
    from_a_stranger(watching.box, "code/step_1.pkl")
    manifest = watching.box / "resume/step-000001/manifest.json"
    manifest.write_text(manifest.read_text().replace("files/code/step_1.pkl", f"files/{name}"))
    with pytest.raises(DamagedError):
        watching.restore()


@pytest.mark.parametrize(
    "state",
    [
        {"files": {"code/step_1.pkl": [0o6777, 2**53]}},
        {"files": {"code/step_1.pkl": []}},
        {"files": {"code/step_1.pkl": ["x"]}},
        {"links": {"code/passwd": "/etc/passwd", "code/up": "../../x", "../x": "code"}},
        {"folders": ["../x", "/tmp/x", "code/../../x"]},
        {"resume": "../../etc/passwd"},
        {"resume": 3, "is_calm": "yes"},
    ],
)
def test_a_state_that_lies_gives_nothing_but_the_files(state: dict[str, object], watching: Watching) -> None:
    from_a_stranger(watching.box, "code/step_1.pkl", **state)
    assert watching.restore() == ""
    assert set(watching.files()) == {"train.py", "step_1.pkl"}
    assert watching.path("step_1.pkl").stat().st_mode & 0o7000 == 0
    assert {path.name for path in watching.code.iterdir()} == {"train.py", "step_1.pkl"}
    assert not (watching.box / "x").exists()


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("$(touch ran).pkl", "__touch_ran_.pkl"),
        ("a b`c`;'d'.pkl", "a_b_c___d_.pkl"),
        ("-rf *.pkl", "_rf__.pkl"),
        ("epoch=3-step=7.pkl", "epoch=3-step=7.pkl"),
    ],
)
def test_a_path_is_handed_on_in_plain_characters(name: str, plain: str, watching: Watching) -> None:
    from_a_stranger(watching.box, f"code/checkpoints/{name}")
    path = watching.restore()
    assert path == (f"code/checkpoints/{name}" if name == plain else f"tmp/restored/{plain}")
    assert (watching.box / path).read_text() == "theirs"
    assert any("a shell could run the name" in said for said in watching.said) == (name != plain)


def test_a_job_that_names_the_very_file_gets_it_back_where_it_was_shipped(tmp_path: Path) -> None:
    watching = Watching(box=tmp_path / "box", pattern="seed.pkl", shipped=("seed.pkl",))
    from_a_stranger(watching.box, "code/seed.pkl")
    assert watching.restore() == "code/seed.pkl"
    assert watching.path("seed.pkl").read_text() == "theirs"


def test_a_checkpoint_that_the_program_did_not_save_is_named_where_it_lies(watching: Watching) -> None:
    from_a_stranger(watching.box)
    assert watching.restore() == "resume/step-000001"
