"""Trainings with a frozen codec: it stays as it was, and what learns is the rest."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer import sessions
from tests.trainer.conftest import together
from vastrun.contract import layout
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.errors import ConfigError

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

COMMON = {"train": 32, "test": 4, "points": 16, "frames": 6}
LEARNED = {
    "data": [{"task": "advection", "betas": [1.0], "keep": "host", **COMMON}, {"task": "darcy", **COMMON}]
}
FROZEN = {**LEARNED, "freeze": "codec"}
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


@pytest.mark.slow
def test_a_frozen_codec_stays_with_every_strategy(tmp_path: Path) -> None:
    box = sessions.prepare(tmp_path / "box", **LEARNED)
    together(learn_and_save, 1, box, BEFORE)
    alone = {"plain": FROZEN, "averaged": {**FROZEN, "ema": 0.9}}
    spread = {name: {**FROZEN, "strategy": name} for name in ("ddp", "fsdp2")}
    runs: dict[str, Frozen] = together(go_on, 1, box, alone, within_s=200)[0]
    first, second = together(go_on, 2, box, spread, within_s=200)
    runs |= first
    assert [first[name].losses == second[name].losses for name in spread] == [True, True]
    assert runs["averaged"].losses == runs["plain"].losses
    assert runs["fsdp2"].losses == runs["ddp"].losses == pytest.approx(runs["plain"].losses, rel=1e-5)
    for name, run in runs.items():
        assert run.moved == run.optimised == {"core", "condition_encoders", "norm"}, name
        assert run.ema_weights == (run.moved if name == "averaged" else set()), name


def test_what_is_frozen_needs_a_checkpoint_and_stays_frozen(tmp_path: Path) -> None:
    box = sessions.prepare(tmp_path / "box", **LEARNED)
    no_checkpoint, thawed = together(refusals, 1, box)[0]
    assert no_checkpoint.startswith("train.freeze: what is frozen comes from a checkpoint, and there is none")
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
    session = sessions.begin(ranks, box, settings)
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
    )


def refusals(ranks: Ranks, box: Path) -> list[str]:
    """Of a frozen codec without a checkpoint, and of a codec that learns again."""

    def freeze_and_save() -> None:
        session = sessions.begin(ranks, box, FROZEN)
        session.save(1, None, durable=True)
        shutil.rmtree(box / layout.RESUME)
        (box / layout.CHECKPOINTS).rename(box / layout.RESUME)

    without = refused(lambda: sessions.begin(ranks, box, FROZEN))
    learn_and_save(ranks, box, 1)
    freeze_and_save()
    return [without, refused(lambda: sessions.begin(ranks, box, LEARNED))]


def refused(work: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as error:
        work()
    return str(error.value)
