"""Data that an earlier run made on the same machine is taken, and can hurt nobody."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from vastrun.contract.data_cache import DataCache
from vastrun.trainer import data
from vastrun.trainer.job.data_config import DataConfig

CONFIG = DataConfig(task="advection", betas=(0.4,), train=17, test=3, points=16, frames=3)
NAME = "1D_Advection_Sols_beta0.4.hdf5"


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a machine with several slots."""
    monkeypatch.setenv("VASTRUN_SHARED_DATA", str(tmp_path / "shared"))
    return tmp_path / "shared"


def kept(shared: Path) -> Path:
    (found,) = shared.rglob("content")
    return found


def was_taken(config: DataConfig, folder: Path) -> bool:
    (line,) = data.generate(config, folder)
    return line.endswith("made before on this machine")


def test_a_file_that_was_made_before_is_taken_and_is_the_same(shared: Path, tmp_path: Path) -> None:
    assert not was_taken(CONFIG, tmp_path / "one")
    assert was_taken(CONFIG, tmp_path / "two")
    assert (tmp_path / "one" / NAME).read_bytes() == (tmp_path / "two" / NAME).read_bytes()


def test_a_file_that_is_made_in_another_way_is_another_file(shared: Path, tmp_path: Path) -> None:
    was_taken(CONFIG, tmp_path / "one")
    for number, other in enumerate(({"seed": 3}, {"points": 32}, {"train": 18}, {"betas": (1.0,)})):
        assert not was_taken(replace(CONFIG, **other), tmp_path / f"other-{number}")  # type: ignore[arg-type]


def test_what_a_run_does_to_its_own_file_changes_no_other_run_s(shared: Path, tmp_path: Path) -> None:
    was_taken(CONFIG, tmp_path / "one")
    (tmp_path / "one" / NAME).write_bytes(b"mine")
    assert was_taken(CONFIG, tmp_path / "two")
    assert (tmp_path / "two" / NAME).read_bytes() != b"mine"


@pytest.mark.parametrize("damage", [b"", b"evil", b"\x89HDF\r\n\x1a\n" + bytes(2000)])
def test_a_changed_shared_file_is_made_again(shared: Path, tmp_path: Path, damage: bytes) -> None:
    was_taken(CONFIG, tmp_path / "one")
    kept(shared).chmod(0o600)
    kept(shared).write_bytes(damage)
    assert not was_taken(CONFIG, tmp_path / "two")
    assert (tmp_path / "two" / NAME).read_bytes() == (tmp_path / "one" / NAME).read_bytes()
    assert was_taken(CONFIG, tmp_path / "three"), "and the next one finds it whole"


def test_a_shared_file_with_a_sum_that_is_no_sum_is_made_again(shared: Path, tmp_path: Path) -> None:
    was_taken(CONFIG, tmp_path / "one")
    kept(shared).with_name("digest").write_bytes(b"\xff\xfe")
    assert not was_taken(CONFIG, tmp_path / "two")


def test_a_shared_file_cannot_be_written_by_mistake(shared: Path, tmp_path: Path) -> None:
    was_taken(CONFIG, tmp_path / "one")
    assert kept(shared).stat().st_mode & 0o222 == 0


def test_of_two_that_need_the_same_file_at_once_one_makes_it(shared: Path, tmp_path: Path) -> None:
    taken: list[bool] = []
    folders = [tmp_path / str(number) for number in range(3)]
    threads = [
        threading.Thread(target=lambda folder=folder: taken.append(was_taken(CONFIG, folder)))
        for folder in folders
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == [False, True, True]


def test_a_machine_of_one_run_keeps_nothing(tmp_path: Path) -> None:
    assert not was_taken(CONFIG, tmp_path / "one")
    assert not was_taken(CONFIG, tmp_path / "two")


def test_a_shared_file_makes_room_for_a_download_that_needs_it(shared: Path, tmp_path: Path) -> None:
    was_taken(CONFIG, tmp_path / "one")
    DataCache(shared).make_room(10**18)
    assert not list(shared.rglob("content"))
    assert not was_taken(CONFIG, tmp_path / "two")
