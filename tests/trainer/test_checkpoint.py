"""Checkpoints: whole or absent, proven by their sums, and never the worse for a full disk."""

from __future__ import annotations

import errno
import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer.checkpoint import Checkpoints, DamagedError, load, load_newest, verify
from trainer.ending import reason_of

CPU = torch.device("cpu")


def state(step: int, size: int = 4) -> dict[str, Any]:
    return {"step": step, "model": {"weight": torch.full((size,), float(step))}, "betas": (0.4, 1.0)}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """The kernel refuses to write beyond `size` bytes of a file, as it refuses on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    Checkpoints(tmp_path, keep=2).save(500, state(500))
    assert names(tmp_path) == ["latest.json", "step-000500"]
    assert json.loads((tmp_path / "latest.json").read_text()) == {"step": 500, "path": "step-000500"}
    loaded = load(tmp_path / "step-000500", CPU)
    assert loaded["betas"] == (0.4, 1.0)
    assert torch.equal(loaded["model"]["weight"], state(500)["model"]["weight"])


def test_the_manifest_names_every_file_with_its_size_and_sum(tmp_path: Path) -> None:
    path = Checkpoints(tmp_path, keep=2).save(1, state(1))
    assert names(path) == ["manifest.json", "state.pt"]
    (file,) = verify(path).files
    assert (file.path, file.size) == ("state.pt", (path / "state.pt").stat().st_size)


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (9, 10, 999_999, 1_000_000):
        checkpoints.save(step, state(step))
    assert names(tmp_path) == ["latest.json", "step-1000000", "step-999999"]
    loaded, _ = load_newest((tmp_path,), CPU)
    assert loaded is not None
    assert loaded["step"] == 1_000_000


def test_saving_a_step_again_changes_nothing(tmp_path: Path) -> None:
    path = Checkpoints(tmp_path, keep=2).save(1, state(1))
    written = (path / "state.pt").stat().st_mtime_ns
    Checkpoints(tmp_path, keep=2).save(1, state(1))
    assert (path / "state.pt").stat().st_mtime_ns == written


@pytest.mark.parametrize("file", ["state.pt", "manifest.json"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path: Path, file: str) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(1, state(1))
    damaged = checkpoints.save(2, state(2)) / file
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    loaded, faults = load_newest((tmp_path,), CPU)
    assert loaded is not None
    assert loaded["step"] == 1
    assert len(faults) == 1
    assert "step-000002" in faults[0]


def test_nothing_begins_anew_when_all_checkpoints_are_damaged(tmp_path: Path) -> None:
    (Checkpoints(tmp_path, keep=2).save(1, state(1)) / "state.pt").unlink()
    with pytest.raises(DamagedError, match="no checkpoint is intact: step-000001 cannot be read"):
        load_newest((tmp_path,), CPU)


def test_a_run_continues_itself_before_it_continues_another(tmp_path: Path) -> None:
    mine, parent = tmp_path / "checkpoints", tmp_path / "resume"
    assert load_newest((mine, parent), CPU) == (None, [])
    Checkpoints(parent, keep=2).save(7, state(7))
    loaded, _ = load_newest((mine, parent), CPU)
    assert loaded is not None
    assert loaded["step"] == 7
    Checkpoints(mine, keep=2).save(3, state(3))
    loaded, _ = load_newest((mine, parent), CPU)
    assert loaded is not None
    assert loaded["step"] == 3


def test_a_full_disk_is_told_and_leaves_the_former_checkpoint_good(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(1, state(1))
    with files_no_larger_than(100_000), pytest.raises((OSError, RuntimeError)) as caught:
        checkpoints.save(2, state(2, size=1_000_000))
    assert reason_of(caught.value) == "disk"
    assert names(tmp_path) == ["latest.json", "step-000001"]
    assert verify(tmp_path / "step-000001").step == 1


def test_what_a_killed_save_left_is_no_checkpoint_and_is_swept(tmp_path: Path) -> None:
    (tmp_path / ".step-000002.part").mkdir()
    checkpoints = Checkpoints(tmp_path, keep=2)
    assert load_newest((tmp_path,), CPU) == (None, [])
    checkpoints.save(3, state(3))
    assert names(tmp_path) == ["latest.json", "step-000003"]


def test_no_space_on_the_device_is_a_disk_fault_wherever_it_stands_in_the_chain() -> None:
    try:
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        finally:
            raise RuntimeError("unexpected pos 128")
    except RuntimeError as error:
        assert reason_of(error) == "disk"
