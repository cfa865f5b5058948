"""Snapshots of a program's folder: what is taken and when, with real files and processes."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.onstart.supervision.own_files import WEIGHTS, Watching, Writer
from vastrun.contract import layout
from vastrun.contract.checkpoint_folder import newest_first, verify


@pytest.fixture
def watching(tmp_path: Path) -> Watching:
    return Watching(box=tmp_path / "box", pattern=None)


def test_all_that_the_program_wrote_is_taken_with_checksums_and_what_came_with_the_job_is_not(
    tmp_path: Path,
) -> None:
    watching = Watching(box=tmp_path / "box", pattern=None, shipped=("train.py", "config.yaml"))
    (watching.box / layout.OUTPUTS).mkdir(parents=True)
    watching.save("G_500.pth")
    watching.save("D_500.pth")
    watching.save("config.yaml", b"changed")
    watching.save("__pycache__/train.cpython-311.pyc")
    watching.save_and_poll(f"../{layout.OUTPUTS}/latest", b"global_step500")
    (folder,) = newest_first(watching.box / layout.CHECKPOINTS)
    files = {file.path for file in verify(folder).files}
    taken = {f"files/code/{name}" for name in ("G_500.pth", "D_500.pth", "config.yaml")}
    assert files == {*taken, "files/run/outputs/latest", "state.json"}


def test_nothing_is_taken_of_what_was_there_until_something_changes(watching: Watching) -> None:
    watching.save("pretrained.pkl")
    watching.watcher.begin()
    watching.poll(6)
    assert watching.taken() == []
    watching.save_and_poll("last.pkl")
    assert watching.content("pretrained.pkl") == WEIGHTS


def test_a_file_that_is_open_for_writing_is_waited_for_and_left_out_when_the_snapshot_is_late(
    watching: Watching,
) -> None:
    watching.save("step_1.pkl")
    writer = Writer(watching.path("step_2.pkl"))
    try:
        watching.poll()
        assert watching.taken() == []
        watching.poll()
        assert watching.content("step_1.pkl") == WEIGHTS
        with pytest.raises(FileNotFoundError):
            watching.content("step_2.pkl")
        assert "between two saves: code/step_2.pkl is open for writing" in watching.said[-1]
    finally:
        writer.finish()
    watching.poll(6)
    assert watching.content("step_2.pkl") == b"half whole"
    assert watching.next_machine().program.restore(0) == ""
    assert len([said for said in watching.said if said.endswith(" MB")]) == 2


def test_a_snapshot_that_was_late_is_followed_by_one_between_two_saves(tmp_path: Path) -> None:
    watching = Watching(box=tmp_path / "box", pattern="part-*")
    for number in range(7):
        watching.save(f"part-{number}.pkl")
        watching.poll(1, is_due=False)
    assert len(watching.taken()) == 1
    watching.poll(2)
    assert len(watching.taken()) == 2 and "nothing matches" not in str(watching.said)


def test_a_pause_within_a_save_is_not_taken_for_one_between_saves(tmp_path: Path) -> None:
    watching = Watching(box=tmp_path / "box", pattern=None, every_s=60.0)
    watching.save("step_1.pkl", age_s=20.0)
    watching.poll()
    watching.save("step_2.pkl", age_s=4.0)
    watching.poll()
    assert watching.taken() == ["step-000000"]


def test_files_that_are_saved_one_after_the_other_are_taken_together(watching: Watching) -> None:
    for step in (1, 2, 3):
        watching.save(f"G_{step}.pth")
        watching.poll(is_due=False)
        watching.save(f"D_{step}.pth")
        watching.poll(is_due=False)
    watching.save_and_poll("G_4.pth")
    assert not [*(watching.box / layout.CHECKPOINTS).rglob("G_4.pth")]
    watching.save("D_4.pth")
    watching.poll(is_due=False)
    names = {path.name for path in newest_first(watching.box / layout.CHECKPOINTS)[0].rglob("*.pth")}
    assert {"G_4.pth", "D_4.pth"} <= names


def test_a_log_that_grows_all_the_time_prevents_nothing(watching: Watching) -> None:
    watching.save("step_1.pkl")
    for mode in ("a", "w"):
        log = watching.path(f"{mode}.log")
        with log.open(mode) as file:
            for line in range(6):
                file.write(f"step {line}\n")
                file.flush()
                watching.poll(1)
        taken = watching.content(log.name)
        assert taken and log.read_bytes().startswith(taken)


def test_a_checkpoint_that_is_saved_slowly_is_no_log(watching: Watching) -> None:
    writer = Writer(watching.path("step_1.pkl"))
    for _ in range(4):
        watching.poll(1, is_due=False)
        writer.go_on()
    writer.kill()
    assert watching.taken() == []


@pytest.mark.parametrize(
    "table", [lambda count: str([*range(count)]), lambda count: f"{count}{' row' * count}"]
)
def test_a_table_that_is_written_anew_at_each_step_is_no_log(
    table: Callable[[int], str], watching: Watching
) -> None:
    for count in range(1, 6):
        watching.path("curve.json").write_text(table(count))
        watching.poll(1, is_due=False)
    assert watching.taken() == []


def test_an_event_file_that_is_opened_for_each_write_prevents_and_ends_no_snapshot(
    watching: Watching,
) -> None:
    path = watching.save_and_poll("events.1764.0", b"event 0\n")
    for number in range(1, 6):
        with path.open("ab") as file:
            file.write(b"event %d\n" % number)
        watching.poll(1, is_due=number == 1)
    newest, first = newest_first(watching.box / layout.CHECKPOINTS)
    assert (first / "files/code/events.1764.0").read_bytes() == b"event 0\n" and verify(first)
    assert watching.content("events.1764.0").startswith(b"event 0\nevent 1\n") and verify(newest)
    assert all(said.endswith(" MB") for said in watching.said)


def test_a_third_save_shows_the_pauses_and_a_kill_soon_after_one_leaves_it(tmp_path: Path) -> None:
    watching = Watching(box=tmp_path / "box", every_s=60.0)
    watching.poll(1)
    for step in range(1, 5):
        watching.save(f"checkpoints/step_{step}.pkl", age_s=9.0 * (step < 4))  # a sixth of every_s is 10 s
        watching.poll(is_due=False)
    assert watching.taken() == ["step-000003"]
    watching.watcher.final_poll(ended_well=False, was_killed=True)
    assert watching.next_machine().restore() == "code/checkpoints/step_4.pkl"


WRITES_TO_A_DATABASE = """
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
base.execute(f"PRAGMA journal_mode={sys.argv[2]}")
base.execute("CREATE TABLE pairs(one, other)")
number = 0
while True:
    number += 1
    base.execute("BEGIN")
    base.execute("INSERT INTO pairs VALUES(?, ?)", (number, number))
    base.execute("COMMIT")
    if number % 50 == 0:
        print(number, flush=True)
"""


@pytest.mark.parametrize("journal", ["WAL", "DELETE"])
def test_a_database_in_use_is_whole_in_each_snapshot_and_never_locked(
    journal: str, watching: Watching
) -> None:
    path = watching.path("study.db")
    program = [sys.executable, "-c", WRITES_TO_A_DATABASE, str(path), journal]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for _ in range(5):
                process.stdout.readline()
                watching.poll()
            assert process.poll() is None, "its database was locked"
        finally:
            process.kill()
    assert len([said for said in watching.said if said.endswith(" MB")]) >= 3, watching.said
    for folder in newest_first(watching.box / layout.CHECKPOINTS):
        with sqlite3.connect(folder / "files/code/study.db") as base:
            assert base.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert base.execute("SELECT count(*) FROM pairs").fetchone()[0] > 0


def test_a_mapped_file_is_taken_once_it_stands_still(watching: Watching) -> None:
    path = watching.save("state.bin", bytes(4096))
    writer = Writer(path, is_mapped=True)
    watching.poll(2)
    assert watching.taken() == []
    watching.poll(1, is_due=False)
    assert watching.content("state.bin") == bytes(4096)
    writer.finish()


def test_an_unchanged_file_is_stored_once(watching: Watching) -> None:
    path = watching.save_and_poll("step_1.pkl")
    watching.save_and_poll("step_2.pkl")
    assert path.stat().st_nlink == 3
    assert watching.taken() == ["step-000001", "step-000000"]


def test_a_program_may_remove_its_files_while_they_are_kept(watching: Watching) -> None:
    for step in range(1, 6):
        watching.save_and_poll(f"step_{step}.pkl", f"weights {step}".encode())
        watching.path(f"step_{step}.pkl").unlink()
    assert watching.taken()[0] == "step-000004"
    assert watching.content("step_5.pkl") == b"weights 5"


def test_a_file_that_is_overwritten_in_place_ends_the_snapshots_with_links_to_it(watching: Watching) -> None:
    watching.save_and_poll("step_1.pkl", b"first")
    watching.path("step_1.pkl").write_bytes(b"second")
    watching.poll()
    assert watching.taken() == []
    assert "is removed: code/step_1.pkl was overwritten in place" in watching.said[-1]
    watching.save_and_poll("step_1.pkl", b"third")
    watching.path("step_1.pkl").write_bytes(b"fourth one")
    watching.poll()
    assert watching.content("step_1.pkl") == b"third"


def test_a_name_without_a_number_is_copied_since_it_will_be_written_again(watching: Watching) -> None:
    path = watching.save_and_poll("last.pkl", b"first")
    path.write_bytes(b"half")
    watching.poll()
    assert watching.content("last.pkl") == b"first"


def test_the_last_snapshot_has_what_a_program_saved_just_before_its_end(watching: Watching) -> None:
    watching.path("step_3.pkl").write_bytes(WEIGHTS)
    watching.watcher.final_poll(ended_well=False, was_stopped=True)
    assert watching.content("step_3.pkl") == WEIGHTS


@pytest.mark.parametrize("was_killed", [True, False])
def test_what_was_renamed_into_place_is_whole_whatever_ended_the_program(
    was_killed: bool, watching: Watching
) -> None:
    watching.save("step_4.pkl.tmp", age_s=1.0).rename(watching.path("step_4.pkl"))  # after the last write
    part, whole = watching.path(".step_5"), watching.path("step_5")
    part.mkdir()
    (part / "state").write_bytes(WEIGHTS)
    while part.stat().st_ctime_ns <= (part / "state").stat().st_mtime_ns:  # times have a grain
        part.rename(whole).rename(part)
    part.rename(whole)
    watching.watcher.final_poll(ended_well=False, was_killed=was_killed)
    assert watching.content("step_4.pkl") == watching.content("step_5/state") == WEIGHTS
    assert "ended in a save" not in str(watching.said)


def test_a_kill_within_a_save_leaves_the_moment_before_it(tmp_path: Path) -> None:
    watching = Watching(box=tmp_path / "box")
    for step in (1, 2):
        watching.save(f"checkpoints/step_{step}.pkl")
        watching.poll(is_due=step == 1)
    writer = Writer(watching.path("checkpoints/step_3.pkl"))
    watching.poll(is_due=False)
    writer.kill()
    watching.watcher.final_poll(ended_well=False, was_killed=True)
    assert watching.watcher.half_written == ("code/checkpoints/step_3.pkl",)
    assert "ended in a save; the next one is that of the moment before" in watching.said[-2]
    after = watching.next_machine()
    assert after.restore() == "code/checkpoints/step_2.pkl"
    assert "checkpoints/step_3.pkl" not in after.files()


def test_a_program_that_failed_right_after_a_save_leaves_the_snapshot_before_it_as_the_calm_one(
    watching: Watching,
) -> None:
    for step in range(1, 5):
        watching.save_and_poll(f"step_{step}.pkl")
    for step in range(5, 9):
        watching.path(f"step_{step}.pkl").write_bytes(b"half?")
        watching.watcher.final_poll(ended_well=False)
    after = watching.next_machine()
    after.restore()
    assert sorted(after.files()) == [f"step_{number}.pkl" for number in range(1, 5)]


@pytest.mark.parametrize("name", ["step\x1b[31m_1.pkl", "step\n1.pkl", "epoch-\u202e1/state", ".git/config"])
def test_a_name_that_is_not_downloaded_is_left_out_and_reported(watching: Watching, name: str) -> None:
    watching.save(name)
    watching.save_and_poll("step_2.pkl")
    assert watching.content("step_2.pkl") == WEIGHTS
    reported = [text for text in watching.said if "a name that is not downloaded" in text]
    assert all(text.isprintable() for text in reported) and bool(reported) == (name != ".git/config")


def test_links_are_taken_as_links_and_what_lies_behind_them_is_not(
    watching: Watching, tmp_path: Path
) -> None:
    (tmp_path / "weights").write_bytes(b"on a larger disk")
    watching.save("step_5.pkl")
    watching.path("latest").symlink_to("step_5.pkl")
    watching.path("far").symlink_to(tmp_path / "weights")
    watching.poll()
    after = watching.next_machine()
    after.restore()
    assert str(after.path("latest").readlink()) == "step_5.pkl"
    assert not os.path.lexists(after.path("far"))
    assert "code/far not restored: a link out of the program's folders" in " ".join(after.said)


def test_more_than_outputs_gb_is_not_stored_unless_the_job_names_checkpoints(watching: Watching) -> None:
    with watching.path("step_1.pkl").open("wb") as file:
        file.truncate(6 * 10**9)
    os.utime(watching.path("step_1.pkl"), (1.7e9, 1.7e9))
    watching.poll()
    assert watching.taken() == []
    assert watching.said == [
        "no snapshot: the program's files have 6.0 GB, and a snapshot has at most 5; name its checkpoints, "
        "or raise limits.snapshot_gb"
    ]


def test_a_snapshot_of_more_than_snapshot_gb_is_not_stored(tmp_path: Path) -> None:
    watching = Watching(box=tmp_path / "box", pattern="*.pkl", max_gb=1e-6)
    watching.save_and_poll("step_1.pkl", bytes(900))
    watching.save_and_poll("step_2.pkl", bytes(900))
    assert watching.taken() == ["step-000001"]
    assert "a snapshot has at most 1e-06" in watching.said[-1]


def test_a_pattern_names_the_checkpoint_to_continue_from_and_leaves_old_ones_out(tmp_path: Path) -> None:
    watching = Watching(box=tmp_path / "box")
    for step in (10, 20, 30):
        watching.save(f"checkpoints/step_{step}.pkl", bytes(1000), age_s=100 - step)
    watching.save("checkpoints/latest", b"step_30.pkl")
    watching.save_and_poll("curve.csv")
    assert watching.taken() == ["step-000030"]
    after = watching.next_machine()
    assert after.restore() == "code/checkpoints/step_30.pkl"
    kept = {f"checkpoints/step_{step}.pkl" for step in (20, 30)}
    assert set(after.files()) == {*kept, "checkpoints/latest", "curve.csv"}


LARGE = bytes(10**6)


def test_a_slow_line_has_what_the_newest_checkpoint_needs_first_and_older_ones_last(tmp_path: Path) -> None:
    watching = Watching(box=tmp_path / "box", pattern="checkpoints/*.pt", keep=3)
    for number in (1, 2, 3):
        watching.save(f"checkpoints/step_{number}.pt", LARGE, age_s=60 - number)
        watching.save(f"cache/part-{number}.bin", LARGE, age_s=40 - number)
    watching.save("checkpoints/latest", b"the best one is step_1", age_s=30)
    watching.poll()
    (newest,) = newest_first(watching.box / layout.CHECKPOINTS)
    names = [file.path.rpartition("/")[2] for file in verify(newest).files]
    needed = ["state.json", "latest", "step_1.pt", "part-3.bin", "step_3.pt", "part-2.bin", "part-1.bin"]
    assert names == [*needed, "step_2.pt"]
    assert json.loads((newest / "state.json").read_text())["older"] == 1


def test_two_snapshots_are_at_least_every_s_apart(tmp_path: Path) -> None:
    watching = Watching(box=tmp_path / "box", every_s=60.0)
    for step in range(1, 30):
        watching.save(f"checkpoints/step_{step}.pkl", age_s=100 - step)
        watching.poll(is_due=False)
    assert len([line for line in watching.said if line.endswith(" MB")]) == 2


@pytest.mark.slow
def test_many_small_files_cost_little_when_nothing_changed(watching: Watching) -> None:
    for number in range(10_000):
        watching.save(f"cells/{number % 100}/{number}.txt", b"")
    watching.poll()
    assert watching.taken() == ["step-000000"]
    began = time.process_time()
    watching.poll()
    assert time.process_time() - began < 2.0
