"""Files of TensorBoard and W&B: read as these write them, while they are written, and whatever they hold."""

import os
import random
import struct
from pathlib import Path

import pytest

from tests.onstart.supervision.curve_programs import (
    HOSTILE_EVENTS,
    HOSTILE_WANDB,
    Hostile,
    event,
    framed,
    frames,
    history,
    part,
    read_all,
    run_program,
    whole,
)
from vastrun.onstart.supervision.curve_file import CurveFile
from vastrun.onstart.supervision.curve_formats import TensorBoardFile, WandbFile
from vastrun.onstart.supervision.logged_curves import CurveMerge


@pytest.mark.slow
def test_scalars_of_the_summary_writer_are_read_in_each_of_their_forms(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    run_program(
        tmp_path,
        """
        import torch
        from torch.utils.tensorboard import SummaryWriter
        writer = SummaryWriter("runs")
        for step in (1, 2):
            writer.add_scalar("Loss/train", 1 / step, step)
            writer.add_scalar("as_tensor", 0.1 * step, step, new_style=True)
            writer.add_scalar("as_double", 0.1 * step, step, new_style=True, double_precision=True)
        writer.add_scalar("broken", float("nan"), 3)
        writer.add_scalar("endless", float("inf"), 3)
        writer.add_histogram("histogram", torch.randn(100), 3)
        writer.add_text("text", "words", 3)
        writer.add_image("picture", torch.zeros(3, 8, 8), 3)
        writer.close()
        """,
    )
    [path] = (tmp_path / "runs").iterdir()

    assert read_all(TensorBoardFile(path)) == [
        (1, "Loss/train", 1.0),
        (1, "as_tensor", 0.1),
        (1, "as_double", 0.1),
        (2, "Loss/train", 0.5),
        (2, "as_tensor", 0.2),
        (2, "as_double", 0.2),
        (3, "broken", None),
        (3, "endless", None),
    ]


TENSORS: dict[str, tuple[bytes, float | None]] = {
    "a float": (part(5, struct.pack("<f", 0.1)), 0.1),
    "a double": (part(6, struct.pack("<d", 1 / 3)), 1 / 3),
    "the bytes of a float": (whole(1, 1) + part(4, struct.pack("<f", 0.1)), 0.1),
    "the bytes of a double": (whole(1, 2) + part(4, struct.pack("<d", 1 / 3)), 1 / 3),
    "a shape without dimensions": (part(2, b"") + part(5, struct.pack("<f", 0.1)), 0.1),
    "a shape with one": (part(2, part(2, whole(1, 1))) + part(5, struct.pack("<f", 0.1)), None),
    "a word": (whole(1, 7) + part(4, b"word"), None),
    "an int": (whole(7, -7), None),
    "the bytes of an int": (whole(1, 3) + part(4, struct.pack("<i", 7)), None),
    "two packed numbers": (part(5, struct.pack("<ff", 1, 2)), None),
    "two numbers": (part(6, struct.pack("<d", 1)) + part(6, struct.pack("<d", 2)), None),
    "nothing": (b"", None),
}


@pytest.mark.parametrize("what", TENSORS)
def test_the_number_of_a_tensor_without_dimensions_is_read(what: str, tmp_path: Path) -> None:
    tensor, value = TENSORS[what]
    path = tmp_path / "events.out.tfevents.1.host.7.0"
    path.write_bytes(framed(whole(2, 3) + part(5, part(1, part(1, b"loss") + part(8, tensor)))))
    assert read_all(TensorBoardFile(path)) == ([] if value is None else [(3, "loss", value)])


@pytest.mark.slow
def test_numbers_that_were_logged_to_wandb_offline_are_read(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    run_program(
        tmp_path,
        """
        import wandb
        run = wandb.init(project="p")
        for step in range(600):
            wandb.log({"loss": 1 / (step + 1), "nested": {"a": step}, "text": "words", "flag": True})
        wandb.log({"late": 3, "broken": float("nan")}, step=1000)
        wandb.log({"table": wandb.Histogram(list(range(1000)))})
        run.finish()
        """,
    )
    [path] = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    assert path.stat().st_size > 1 << 15, "its frames are in several blocks"

    points = read_all(WandbFile(path))

    assert sorted(point for point in points if point.name == "loss") == [
        (step, "loss", 1 / (step + 1)) for step in range(600)
    ]
    assert sorted(point for point in points if point.step == 1000) == [
        (1000, "broken", None),
        (1000, "late", 3),
    ]
    assert {point.name for point in points} == {"loss", "nested.a", "late", "broken"}


FILES = {
    "events.out.tfevents.1.host.7.0": (
        TensorBoardFile,
        b"".join(framed(event(step, b"loss", 1.0 / (step + 1))) for step in range(200)),
    ),
    "run-a.wandb": (
        WandbFile,
        frames(*(history(step, loss=str(step), pad="1" * 39, more="2" * 400) for step in range(200))),
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_grows_byte_by_byte_gives_each_point_once(name: str, tmp_path: Path) -> None:
    kind, content = FILES[name]
    path, dice = tmp_path / name, random.Random(7)
    file, points, at = kind(path), [], 0
    while at < len(content):
        size = dice.choice((1, 3, 100, 5000))
        with path.open("ab") as growing:
            growing.write(content[at : at + size])
        at += size
        points += read_all(file)

    assert points == read_all(kind(path))
    assert [point.step for point in points if point.name == "loss"] == list(range(200))


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        *(pytest.param(TensorBoardFile, made, id=f"events: {name}") for name, made in HOSTILE_EVENTS.items()),
        *(pytest.param(WandbFile, made, id=f"wandb: {name}") for name, made in HOSTILE_WANDB.items()),
    ],
)
def test_a_hostile_file_shows_and_harms_nothing(kind: type[CurveFile], made: Hostile, tmp_path: Path) -> None:
    path, merge = tmp_path / "file", CurveMerge()
    path.write_bytes(made())
    merge.add(kind(path), deadline=float("inf"))
    assert merge.take() == []


@pytest.mark.parametrize("name", FILES)
def test_randomly_changed_bytes_end_the_reading_without_an_error(name: str, tmp_path: Path) -> None:
    kind, content = FILES[name]
    path, dice = tmp_path / name, random.Random(11)
    for _ in range(200):
        changed = bytearray(content[:3000])
        for _ in range(dice.randint(1, 30)):
            changed[dice.randrange(len(changed))] = dice.randrange(256)
        path.write_bytes(changed)
        read_all(kind(path))


def test_a_million_tags_become_no_more_names_than_the_limit(tmp_path: Path) -> None:
    path, merge = tmp_path / "events.out.tfevents.1.host.7.0", CurveMerge()
    scalars = [event(1, f"tag{number}".encode(), 1.0) for number in range(30_000)]
    path.write_bytes(b"".join(map(framed, scalars)))
    merge.add(TensorBoardFile(path), deadline=float("inf"))
    lines = merge.take()
    assert sum(len(line) - 1 for line in lines) == 200
    assert all(len(line) <= 51 for line in lines)


def test_a_file_that_was_begun_anew_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.host.7.0"
    path.write_bytes(framed(event(1, b"loss", 1.0)) * 2)
    file = TensorBoardFile(path)
    read_all(file)
    path.write_bytes(framed(event(1, b"loss", 1.0)))
    assert read_all(file) == []
    assert file.is_broken


def test_a_pipe_by_the_name_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.host.7.0"
    os.mkfifo(path)
    assert read_all(TensorBoardFile(path)) == []
