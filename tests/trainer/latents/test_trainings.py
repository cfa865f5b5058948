"""Trainings with a frozen codec: it stays as it was, and what it makes of the data may be read from files."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainer import sessions
from tests.trainer.conftest import together
from vastrun.contract import layout
from vastrun.contract.errors import ConfigError
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.engine.session import Session
from vastrun.trainer.heartbeat import Heartbeat
from vastrun.trainer.latents import with_latents
from vastrun.trainer.latents.writer import LatentWriter, check_disk_space

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

COMMON = {"train": 32, "test": 4, "points": 16, "frames": 6}
LEARNED = {
    "noise": 0.0,
    "augment": False,
    "data": [
        {"task": "advection", "betas": [1.0], "keep": "host", **COMMON},
        {"task": "darcy", **COMMON},
    ],
}
FROZEN = {**LEARNED, "freeze": "codec"}
CACHED = {**FROZEN, "latents": "disk"}
BEFORE, STEPS = 3, 5


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """A training that goes on with a frozen codec."""

    losses: list[float]
    moved: set[str]
    """Parts of the operator that learned."""
    ema_weights: set[str]
    """Parts that an average is kept of."""
    optimised: set[str]
    """Parts that the optimiser looks after."""
    bytes_read: int
    """Of tokens, in the first step of this rank."""


@pytest.mark.slow
def test_a_frozen_codec_stays_and_its_tokens_from_files_are_those_it_would_make(tmp_path: Path) -> None:
    box = sessions.prepare(tmp_path / "box", **LEARNED)
    together(learn_and_save, 1, box, BEFORE)
    alone = {"plain": FROZEN, "cached": CACHED, "averaged": {**CACHED, "ema": 0.9}}
    spread = {name: {**CACHED, "strategy": name} for name in ("ddp", "fsdp2")}
    runs: dict[str, Frozen] = together(go_on, 1, box, alone, within_s=200)[0]
    made = {path: path.stat().st_mtime_ns for path in files_of(box)}
    first, second = together(go_on, 2, box, spread, within_s=200)
    assert {path: path.stat().st_mtime_ns for path in files_of(box)} == made
    runs |= first
    assert [first[name].losses == second[name].losses for name in spread] == [True, True]
    assert runs["cached"].losses == pytest.approx(runs["plain"].losses, rel=1e-6)
    assert runs["fsdp2"].losses == runs["ddp"].losses == pytest.approx(runs["plain"].losses, rel=1e-5)
    assert runs["plain"].bytes_read == 0
    assert runs["cached"].bytes_read == 8 * (4 + 16) * 32 * 4
    for name, run in runs.items():
        assert run.moved == run.optimised == {"core", "condition_encoders", "norm"}, name
        assert run.ema_weights == (run.moved if name == "averaged" else set()), name


@pytest.mark.slow
def test_tokens_are_read_where_they_are_and_never_those_of_another_codec(tmp_path: Path) -> None:
    box = sessions.prepare(tmp_path / "box", **LEARNED)
    together(learn_and_save, 1, box, BEFORE)
    once = together(go_on, 1, box, {"cached": CACHED})[0]["cached"].losses
    before = files_of(box)
    for path in before:
        values = np.load(path)
        np.save(path, 0 * values)
    assert together(go_on, 1, box, {"cached": CACHED})[0]["cached"].losses != pytest.approx(once, rel=1e-3)
    together(learn_and_save, 1, box, BEFORE + 1)
    other = together(go_on, 1, box, {"plain": FROZEN, "cached": CACHED})[0]
    assert other["cached"].losses == pytest.approx(other["plain"].losses, rel=1e-6)
    assert len(files_of(box)) == 2 * len(before)


@pytest.mark.slow
def test_ranks_go_on_with_what_was_made_before_a_kill_at_any_point(tmp_path: Path) -> None:
    box = sessions.prepare(tmp_path / "box", **LEARNED)
    together(learn_and_save, 1, box, BEFORE)
    together(make_until_killed, 1, box, 3)
    made = {path.name: path.stat().st_mtime_ns for path in files_of(box)}
    assert len(made) == 3
    assert {path.name for path in files_of(box, ".*.part")} == {".tokens-00003.npy.1.part"}
    assert together(make_the_rest, 2, box) == [6, 7]
    assert len(files_of(box)) == 16
    assert files_of(box, ".*.part") == []
    assert made.items() <= {path.name: path.stat().st_mtime_ns for path in files_of(box)}.items()


def test_what_is_frozen_needs_a_checkpoint_and_tokens_need_room(tmp_path: Path) -> None:
    box = sessions.prepare(tmp_path / "box", **LEARNED)
    no_checkpoint, no_room, thawed = together(refusals, 1, box)[0]
    assert no_checkpoint.startswith("train.freeze: what is frozen comes from a checkpoint, and there is none")
    assert "the tokens take 1073741824.0 GiB" in no_room
    assert thawed == "train.freeze: the codec was frozen in step-000001, which has no optimiser state for it"


def learn_and_save(ranks: Ranks, box: Path, steps: int) -> None:
    """A checkpoint to continue from."""
    shutil.rmtree(box / layout.RESUME, ignore_errors=True)
    session = sessions.begin(ranks, box, LEARNED)
    sessions.learn(session, 0, steps)
    session.save(steps, None, durable=True)
    session.loader.close()
    (box / layout.CHECKPOINTS).rename(box / layout.RESUME)


def go_on(ranks: Ranks, box: Path, jobs: dict[str, dict[str, Any]]) -> dict[str, Frozen]:
    return {name: train_on(ranks, box, settings) for name, settings in jobs.items()}


def train_on(ranks: Ranks, box: Path, settings: dict[str, Any]) -> Frozen:
    session = with_latents(sessions.begin(ranks, box, settings), heart_in(box, ranks))
    read = sum(tokens_in(session, number) for number in range(session.task_schedule.micro_batches))
    before = sessions.parameters(session.operator)
    points = sessions.learn(session, session.start, session.start + STEPS)
    after = sessions.parameters(session.operator)
    session.loader.close()
    looked_after = {p for group in session.optimizer.param_groups for p in group["params"]}
    averages = session.ema.state_dict() if session.ema else {}
    return Frozen(
        losses=[loss for loss, _ in points],
        moved={name.split(".")[0] for name in before if not torch.equal(before[name], after[name])},
        ema_weights={name.split(".")[0] for name in averages},
        optimised={
            name.split(".")[0] for name, p in session.operator.named_parameters() if p in looked_after
        },
        bytes_read=read,
    )


def tokens_in(session: Session, number: int) -> int:
    """Bytes of them in a micro-batch, as the loader and as a pickled task bring them."""
    place = session.task_schedule.place(session.start, number)
    indices = session.task_schedule.sample_plans[place.task].micro_batch_of(place.step, place.number)
    latents = session.loader.read(session.start, number).latents
    again = pickle.loads(pickle.dumps(session.tasks[place.task])).batch(place.step, indices).latents
    assert (latents is None and again is None) or torch.equal(latents, again)
    return 0 if latents is None else latents.nbytes


class Killed(BaseException):
    """As by a signal: nothing is tidied up."""


def make_until_killed(ranks: Ranks, box: Path, files: int) -> None:
    session = sessions.begin(ranks, box, FROZEN)
    writer = LatentWriter.of(session, 0, box / layout.LATENTS)
    beats: list[None] = []

    def beat() -> None:
        beats.append(None)
        if len(beats) > files:
            half = writer.files.folder / ".tokens-00003.npy.1.part"
            half.write_bytes(b"half")
            raise Killed

    with pytest.raises(Killed):
        writer.run(ranks, beat)


def make_the_rest(ranks: Ranks, box: Path) -> int:
    """How many files this rank made."""
    beats: list[None] = []
    session = sessions.begin(ranks, box, {**FROZEN, "strategy": "fsdp2"})
    LatentWriter.of(session, 0, box / layout.LATENTS).run(ranks, lambda: beats.append(None))
    return len(beats)


def refusals(ranks: Ranks, box: Path) -> list[str]:
    """Of a frozen codec without a checkpoint, of a full disk, and of a codec that learns again."""

    def freeze_and_save() -> None:
        session = sessions.begin(ranks, box, FROZEN)
        session.save(1, None, durable=True)
        shutil.rmtree(box / layout.RESUME)
        (box / layout.CHECKPOINTS).rename(box / layout.RESUME)

    without = refused(lambda: sessions.begin(ranks, box, FROZEN))
    full = refused(lambda: check_disk_space(ranks, box / layout.LATENTS, 1 << 60))
    learn_and_save(ranks, box, 1)
    freeze_and_save()
    return [without, full, refused(lambda: sessions.begin(ranks, box, LEARNED))]


def refused(work: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as error:
        work()
    return str(error.value)


def heart_in(box: Path, ranks: Ranks) -> Heartbeat:
    return Heartbeat(box / layout.HEARTBEATS / f"rank-{ranks.rank.rank}")


def files_of(box: Path, pattern: str = "*.npy") -> list[Path]:
    return sorted((box / layout.LATENTS).glob(f"*/{pattern}"))
