"""Files of tokens: what is there is whole and of the right kind; all else is missing, and is made again."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vastrun.contract.config import ModelConfig, TrainConfig
from vastrun.contract.config_checks import faults_of
from vastrun.contract.data_config import DataConfig
from vastrun.contract.errors import DataError
from vastrun.trainer.latents.files import LatentFiles, Tokens, TokensShape
from vastrun.trainer.sampling.windows import WindowSpace, draw_indices

SHAPE = TokensShape(trajectories=33, frames=4, tokens=3, dim=2)
ABOUT = {"encoder": "a", "points": (3,)}


def files_in(folder: Path, about: dict[str, Any] = ABOUT) -> LatentFiles:
    return LatentFiles(folder / "set", SHAPE, about)


def tokens_of(trajectories: range) -> Tokens:
    """Each number says whose it is."""
    values = np.arange(SHAPE.trajectories * 4 * 3 * 2, dtype=np.float32).reshape(-1, 4, 3, 2)
    return values[trajectories.start : trajectories.stop]


def make(files: LatentFiles) -> None:
    files.prepare_folder()
    for number in files.missing():
        files.write(number, tokens_of(files.trajectory_range(number)))


def test_the_tokens_of_a_window_are_those_of_its_first_frame_in_any_process(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    assert files.missing_bytes() == tokens_of(range(33)).nbytes
    make(files)
    assert (files.missing(), files.missing_bytes()) == ([], 0)
    space = WindowSpace(trajectories=33, frames=5, grid=(8,), unroll=2)
    chosen = draw_indices(0, 0, batch=40, noise=0.0, space=space)
    expected = tokens_of(range(33))[chosen.trajectory, chosen.frames[:, 0]]
    assert np.array_equal(files.read(chosen), expected)
    sent = pickle.dumps(files)
    assert len(sent) < 1000
    assert np.array_equal(pickle.loads(sent).read(chosen), expected)


def test_what_is_cut_short_or_too_long_is_missing_and_halves_are_swept(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    make(files)
    short, long, gone, half = (files.folder / f"tokens-0000{number}.npy" for number in (1, 3, 4, 5))
    short.write_bytes(short.read_bytes()[:-1])
    long.write_bytes(long.read_bytes() + b"0")
    gone.unlink()
    half.rename(half.with_name(".tokens-00005.npy.1.part"))
    again = files_in(tmp_path)
    assert again.missing() == [1, 3, 4, 5]
    space = WindowSpace(trajectories=33, frames=5, grid=(8,), unroll=1)
    with pytest.raises(DataError, match="tokens-0000"):
        again.read(draw_indices(0, 0, batch=33, noise=0.0, space=space))
    make(again)
    assert again.missing() == []
    assert [path.name for path in files.folder.glob(".*")] == []


def test_files_of_something_else_are_missing_even_where_they_have_the_name(tmp_path: Path) -> None:
    make(files_in(tmp_path))
    other = files_in(tmp_path, {**ABOUT, "encoder": "b"})
    assert len(other.missing()) == 11
    other.prepare_folder()
    assert [path.name for path in other.folder.iterdir()] == ["about.json"]


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({}, []),
        ({"noise": 0.01}, ["noise"]),
        ({"augment": True}, ["augment"]),
        ({"freeze": "off"}, ["latents"]),
        ({"model": ModelConfig(name="fno")}, ["freeze"]),
        ({"stage": "refine"}, ["freeze", "noise"]),
    ],
)
def test_tokens_that_would_not_be_those_of_the_training_are_refused(
    changes: dict[str, Any], keys: list[str]
) -> None:
    sound = TrainConfig(data=(DataConfig(),), freeze="codec", latents="disk", noise=0.0, augment=False)
    assert [key for key, _ in faults_of(replace(sound, **changes), 1)] == keys
