"""The watcher on a program's own checkpoints: what it takes, and what it leaves, with real files."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.onstart.supervision.own_files import (
    Watching,
    Writer,
    dcp_like,
    hugging_face_like,
    safetensors_like,
    torch_like,
)
from vastrun.contract import layout
from vastrun.contract.checkpoint_folder import newest_first, verify
from vastrun.onstart.supervision.checkpoint_entries import find_entries

FILES = [(torch_like, "model.pt"), (safetensors_like, "model.safetensors")]


@pytest.fixture
def watching(tmp_path: Path) -> Watching:
    return Watching(box=tmp_path / "box")


def test_a_file_that_stands_still_for_two_looks_is_taken_with_its_checksum(watching: Watching) -> None:
    watching.path("checkpoints/step_500.pkl").write_bytes(b"weights")
    watching.poll()
    assert watching.taken() == []
    watching.poll()
    assert watching.taken() == ["step-000500"]
    assert watching.content("checkpoints/step_500.pkl") == b"weights"
    verify(newest_first(watching.box / layout.CHECKPOINTS)[0])
    assert watching.said == ["checkpoint checkpoints/step_500.pkl stored as step-000500, 0.0 MB"]


def test_a_file_is_not_taken_while_a_process_of_the_run_has_it_open_for_writing(watching: Watching) -> None:
    writer = Writer(watching.path("checkpoints/step_1.pkl"))
    try:
        watching.poll(10)
        assert watching.taken() == []
    finally:
        writer.finish()
    watching.poll(2)
    assert watching.content("checkpoints/step_1.pkl") == b"half whole"


def test_what_a_killed_writer_left_is_never_taken_and_is_said_to_be_incomplete(watching: Watching) -> None:
    watching.path("checkpoints/step_1.pkl").write_bytes(b"whole")
    watching.poll(2)
    writer = Writer(watching.path("checkpoints/step_2.pkl"))
    watching.poll()
    writer.kill()
    watching.watcher.final_poll(ended_well=False)
    assert watching.taken() == ["step-000001"]
    assert watching.watcher.incomplete == ("checkpoints/step_2.pkl",)


def test_one_look_at_what_a_killed_writer_left_does_not_prove_it_complete(watching: Watching) -> None:
    writer = Writer(watching.path("checkpoints/step_2.pkl"))
    watching.poll()
    writer.kill()
    watching.poll()
    watching.watcher.final_poll(ended_well=False)
    assert watching.taken() == []
    assert watching.watcher.incomplete == ("checkpoints/step_2.pkl",)


def test_the_last_look_takes_what_a_program_saved_just_before_it_ended_well(watching: Watching) -> None:
    for step in (1, 2, 3):
        watching.path(f"checkpoints/step_{step}.pkl").write_bytes(b"weights")
        set_time(watching.path(f"checkpoints/step_{step}.pkl"), step)
    watching.watcher.final_poll(ended_well=True)
    assert watching.taken() == ["step-000003", "step-000002"]


@pytest.mark.parametrize(("save", "name"), FILES)
def test_after_a_failure_the_format_of_a_file_proves_that_all_of_it_was_written(
    save: Callable[[Path], None], name: str, watching: Watching
) -> None:
    save(watching.path(f"checkpoints/1_{name}"))
    cut = watching.path(f"checkpoints/2_{name}")
    save(cut)
    cut.write_bytes(cut.read_bytes()[:-10])
    watching.watcher.final_poll(ended_well=False)
    assert watching.taken() == ["step-000001"]
    assert watching.watcher.incomplete == (f"checkpoints/2_{name}",)


@pytest.mark.parametrize(("save", "name"), FILES)
def test_a_file_that_is_cut_short_is_not_taken_however_long_it_stands_still(
    save: Callable[[Path], None], name: str, watching: Watching
) -> None:
    path = watching.path(f"checkpoints/2_{name}")
    save(path)
    path.write_bytes(path.read_bytes()[:-10])
    watching.poll(100)
    assert watching.taken() == []
    save(path)
    watching.poll(2)
    assert watching.taken() == ["step-000002"]


def test_a_file_that_was_renamed_into_place_is_taken_at_the_first_look(watching: Watching) -> None:
    part = watching.path("checkpoints/step_4.pkl.tmp")
    part.write_bytes(b"weights")
    os.utime(part, (time.time() - 1, time.time() - 1))  # the rename comes later than the last write
    watching.poll(5)
    assert watching.taken() == []
    part.rename(watching.path("checkpoints/step_4.pkl"))
    watching.poll()
    assert watching.taken() == ["step-000004"]


@pytest.mark.parametrize("save", [hugging_face_like, dcp_like])
def test_a_folder_counts_once_its_framework_marked_it_complete(
    save: Callable[..., None], watching: Watching
) -> None:
    save(watching.path("checkpoints/checkpoint-10"), "first", finished=False)
    watching.poll(100)
    assert watching.taken() == []
    save(watching.path("checkpoints/checkpoint-20"), "second")
    watching.poll(2)
    assert watching.taken() == ["step-000020"]


@pytest.mark.parametrize("save", [hugging_face_like, dcp_like])
def test_after_a_failure_a_marked_folder_is_taken_and_one_without_its_mark_is_not(
    save: Callable[..., None], watching: Watching
) -> None:
    save(watching.path("checkpoints/checkpoint-10"), "first")
    save(watching.path("checkpoints/checkpoint-20"), "second", finished=False)
    watching.watcher.final_poll(ended_well=False)
    assert watching.taken() == ["step-000010"]
    assert watching.watcher.incomplete == ("checkpoints/checkpoint-20",)


def test_a_state_folder_of_accelerate_waits_for_its_random_states(watching: Watching) -> None:
    folder = watching.path("checkpoints/checkpoint_3")
    folder.mkdir()
    (folder / "optimizer.bin").write_bytes(b"moments")
    watching.poll(100)
    assert watching.taken() == []
    (folder / "random_states_0.pkl").write_bytes(b"seeds")
    watching.poll(10)
    assert watching.taken() == ["step-000003"]


def test_a_folder_without_a_mark_waits_twice_as_long_as_its_files_took(watching: Watching) -> None:
    folder = watching.path("checkpoints/epoch-3")
    folder.mkdir()
    for number, name in enumerate(("model", "optimizer")):
        (folder / name).write_bytes(b"numbers")
        set_time(folder / name, number * 10)
    watching.poll(2, after_s=9.0)
    assert watching.taken() == []
    watching.poll(2, after_s=9.0)
    assert watching.taken() == ["step-000003"]


def test_a_folder_that_was_taken_too_early_is_withdrawn_and_taken_again(watching: Watching) -> None:
    watching.path("checkpoints/epoch-1.pkl").write_bytes(b"before")
    watching.poll(2)
    folder = watching.path("checkpoints/epoch-3")
    folder.mkdir()
    (folder / "model").write_bytes(b"numbers")
    watching.poll(5)
    assert watching.taken() == ["step-000003", "step-000001"]
    (folder / "optimizer").write_bytes(b"numbers")
    watching.poll()
    assert watching.taken() == ["step-000001"]
    watching.poll(5)
    assert watching.content("checkpoints/epoch-3/optimizer") == b"numbers"


def test_a_program_may_remove_its_checkpoints_while_they_are_kept(watching: Watching) -> None:
    for step in range(1, 6):
        watching.path(f"checkpoints/step_{step}.pkl").write_bytes(f"weights {step}".encode())
        watching.poll(2)
        watching.path(f"checkpoints/step_{step}.pkl").unlink()
    watching.poll(2)
    assert watching.taken() == ["step-000005", "step-000004"]
    assert watching.content("checkpoints/step_5.pkl") == b"weights 5"


def test_hard_links_take_no_room(watching: Watching) -> None:
    path = watching.path("checkpoints/step_1.pkl")
    path.write_bytes(b"weights")
    watching.poll(2)
    assert path.stat().st_nlink == 2


def test_a_file_that_is_overwritten_in_place_fails_its_checksum_and_the_one_before_is_named(
    watching: Watching,
) -> None:
    watching.path("checkpoints/step_1.pkl").write_bytes(b"first")
    watching.poll(2)
    path = watching.path("checkpoints/step_2.pkl")
    path.write_bytes(b"second")
    watching.poll(2)
    assert watching.taken() == ["step-000002", "step-000001"]
    Writer(path).kill()
    watching.watcher.final_poll(ended_well=False)
    assert watching.taken() == ["step-000001"]
    assert '"step-000001"' in (watching.box / layout.CHECKPOINTS / "latest.json").read_text()


def test_a_name_without_a_number_is_copied_since_it_will_be_written_again(watching: Watching) -> None:
    path = watching.path("checkpoints/last.pkl")
    path.write_bytes(b"first")
    watching.poll(2)
    path.write_bytes(b"second one")
    watching.poll(2)
    Writer(path).kill()
    watching.watcher.final_poll(ended_well=False)
    assert watching.taken() == ["step-000001", "step-000000"]
    assert watching.content("checkpoints/last.pkl") == b"second one"


def test_what_was_there_before_the_start_is_no_checkpoint_until_it_changes(watching: Watching) -> None:
    path = watching.path("checkpoints/pretrained.pkl")
    path.write_bytes(b"shipped")
    watching.watcher.begin()
    watching.poll(5)
    watching.watcher.final_poll(ended_well=True)
    assert watching.taken() == []
    path.write_bytes(b"trained")
    watching.poll(2)
    assert watching.content("checkpoints/pretrained.pkl") == b"trained"


def test_links_that_lead_out_of_the_programs_folder_are_not_followed_and_said(
    watching: Watching, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "step_1.pkl").write_bytes(b"weights")
    watching.path("checkpoints").symlink_to(elsewhere)
    watching.poll(5)
    watching.watcher.final_poll(ended_well=True)
    assert watching.taken() == []
    assert watching.said == [
        "checkpoints: checkpoints/step_1.pkl is a link out of the program's folder and is not stored"
    ]


def test_a_folder_with_a_link_that_leads_out_is_not_taken_in_part(watching: Watching, tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"on a larger disk")
    folder = watching.path("checkpoints/epoch-1")
    folder.mkdir()
    (folder / "optimizer").write_bytes(b"moments")
    (folder / "weights").symlink_to(tmp_path / "weights")
    watching.poll(10)
    watching.watcher.final_poll(ended_well=True)
    assert watching.taken() == []
    assert "checkpoints/epoch-1 is a link out of the program's folder" in watching.said[0]


@pytest.mark.parametrize("name", ["step\x1b[31m_1.pkl", "step\n1.pkl", "step\t1.pkl", "epoch-\u202e1/state"])
def test_a_checkpoint_with_control_characters_in_its_name_is_reported(watching: Watching, name: str) -> None:
    path = watching.path("checkpoints") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"weights")
    watching.path("checkpoints/step_2.pkl").write_bytes(b"weights")
    watching.poll(5)
    watching.watcher.final_poll(ended_well=True)
    assert watching.taken() == ["step-000002"]
    (said,) = [text for text in watching.said if "control characters" in text]
    assert said.isprintable() and said.startswith("checkpoints: checkpoints/")


def test_a_folder_with_an_odd_name_in_it_is_not_taken_in_part(watching: Watching) -> None:
    folder = watching.path("checkpoints/epoch-1")
    folder.mkdir(parents=True)
    (folder / "optimizer").write_bytes(b"moments")
    (folder / "wei\x07ghts").write_bytes(b"weights")
    watching.poll(10)
    watching.watcher.final_poll(ended_well=True)
    assert watching.taken() == []
    assert watching.said == [
        "checkpoints: checkpoints/epoch-1 has control characters in its name and is not stored"
    ]


def test_a_link_within_the_programs_folder_is_taken_as_the_file_that_it_leads_to(watching: Watching) -> None:
    watching.path("shared").write_bytes(b"vocabulary")
    folder = watching.path("checkpoints/epoch-1")
    folder.mkdir()
    (folder / "tokenizer").symlink_to(watching.path("shared"))
    watching.poll(10)
    assert watching.content("checkpoints/epoch-1/tokenizer") == b"vocabulary"


@pytest.mark.parametrize("name", ["latest.txt", "latest", "config.json", "log.txt"])
def test_a_note_beside_checkpoints_is_none_unless_the_pattern_names_it(
    name: str, watching: Watching, tmp_path: Path
) -> None:
    watching.path("checkpoints/step_1.pkl").write_bytes(b"weights")
    watching.path(f"checkpoints/{name}").write_text("step_1.pkl")
    watching.poll(3)
    watching.watcher.final_poll(ended_well=True)
    assert watching.taken() == ["step-000001"]
    named = Watching(box=tmp_path / "other", pattern="*.json")
    named.path("weights-3.json").write_text("[0.5]")
    named.poll(2)
    assert named.taken() == ["step-000003"]


def test_two_checkpoints_are_at_least_every_s_apart(tmp_path: Path) -> None:
    watching = Watching(box=tmp_path / "box", every_s=60.0)
    for step in range(1, 30):
        watching.path(f"checkpoints/step_{step}.pkl").write_bytes(b"weights")
        watching.poll(2)
    assert len([line for line in watching.said if "stored" in line]) == 2


def test_a_checkpoint_has_a_higher_number_than_all_before_whatever_its_name(watching: Watching) -> None:
    for name in ("step_500.pkl", "step_20.pkl", "last.pkl", "step_20261126123456.pkl"):
        watching.path(f"checkpoints/{name}").write_bytes(b"weights")
        watching.poll(2)
    assert [line.split()[4] for line in watching.said] == [
        *("step-000500,", "step-000501,", "step-000502,", "step-000503,")
    ]


@pytest.mark.slow
def test_ten_thousand_files_cost_a_look_less_than_two_seconds(watching: Watching) -> None:
    for number in range(10_000):
        watching.path(f"checkpoints/step_{number}.pkl").write_bytes(b"")
    watching.path("checkpoints/step_10000.pkl").write_bytes(b"weights")
    began = time.process_time()
    watching.poll(2)
    assert (time.process_time() - began) / 2 < 2.0
    assert watching.taken() == ["step-010000"]


def test_of_more_files_than_a_look_reads_the_entries_that_changed_last_count(tmp_path: Path) -> None:
    for number in range(3):
        folder = tmp_path / f"epoch-{number}"
        folder.mkdir()
        for name in ("model", "optimizer"):
            (folder / name).write_bytes(b"numbers")
        set_time(folder, number)
    listing = find_entries(tmp_path, "*", max_files=5)
    assert ([entry.name for entry in listing.entries], listing.is_cut) == (["epoch-2", "epoch-1"], True)


def set_time(path: Path, seconds: float) -> None:
    """Make its last write that many seconds after a day in the past; its change of state stays later."""
    os.utime(path, (1_700_000_000 + seconds, 1_700_000_000 + seconds))
