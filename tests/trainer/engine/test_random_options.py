"""Trainings of random options: none ends without a clear error, and how one is computed changes no loss.

Two dozen, of which CI tries one; `make fuzz` tries 64, and FUZZ_SEED draws others.
"""

import math
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.trainer import sessions
from tests.trainer.conftest import together
from vastrun.contract import layout
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.evaluation.validation import Validation
from vastrun.trainer.job.config_checks import faults_of

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(600)]

Options = dict[str, Any]
Way = tuple[int, Options]
"""Ranks, and all options of their training."""

COUNT = 64 if os.environ.get("FUZZ") else 24
SEED = int(os.environ.get("FUZZ_SEED", "0"))
SAVED, LAST = 3, 5
"""Steps after which a checkpoint is saved, and after which a training is over."""
TOLERANCE = 2e-5

TIMED: Options = {"train": 12, "test": 2, "validation": 3, "frames": 7, "points": 32}
SQUARE: Options = {"train": 12, "test": 2, "validation": 3, "points": 16}
TASKS: tuple[Options, ...] = (
    {"task": "advection", "betas": [0.4, 1.0], **TIMED},
    {"task": "burgers", "nus": [0.1], **TIMED},
    {"task": "darcy", **SQUARE},
    {"task": "diffusion_reaction", "frames": 5, **SQUARE},
    {"task": "shallow_water", "frames": 5, **SQUARE},
)
FORMER = {"operator": None, "refine": "operator", "distill": "refine", "steady": "operator"}

LEARNED: dict[str, tuple[Any, ...]] = {
    "stage": ("operator", "operator", "operator", "refine", "distill", "steady"),
    "seed": tuple(range(100)),
    "batch": (6, 12),
    "turns": (None, 1, 3),
    "mixing": ("balanced", "proportional"),
    "unroll": (1, 2, 3),
    "noise": (0.01, 0.0, 0.2),
    "augment": (True, False),
    "remainder": ("carry", "drop", "pad"),
    "ema": (None, 0.9),
    "precision": ("fp32", "fp32", "fp32", "bf16", "fp16"),
    "evaluate_every": (SAVED,),
    "objective.spectral": (0.0, 0.0, 0.3),
    "objective.conservation": (0.0, 0.0, 0.3),
    "model.name": ("latent", "latent", "fno", "spectral"),
    "model.dim": (16, 24),
    "model.depth": (1, 2),
    "model.heads": (4, 2),
    "model.patch": (8, 4),
    "model.modes": (12, 6),
    "model.points": (32, 24),
    "optim.name": ("adamw", "adamw", "muon"),
    "optim.lr": (3e-3, 1e-3),
    "optim.schedule": ("cosine", "linear", "step", "constant"),
    "optim.drop_after": (200, 2),
    "optim.clip": (1.0, 0.1),
}
"""What a training is: whoever computes it, its losses are these."""
KEEP = ("device", "device", "device", "host", "host", *(("disk",) if os.environ.get("FUZZ") else ()))
"""To read from files, each rank starts processes that import torch: too long for every day."""
COMPUTED: dict[str, tuple[Any, ...]] = {
    "strategy": ("auto", "single", "ddp", "fsdp2"),
    "fsdp2.reshard_after_forward": (True, False),
    "activation_checkpointing": ("off", "selective", "full"),
    "micro_batch": (None, 1, 2, 3),
    "data.keep": KEEP,
    "loader.workers": (2, 1),
    "loader.prefetch": (2, 1, 3),
    "check_every": (100, 2),
}
"""How it is computed."""
RANKS = (1, 2, 2, 3)
BASE: Options = {"steps": LAST, "log_every": 1, "checkpoint_every": SAVED, "plots": False}


def drawn(lot: random.Random, choices: dict[str, tuple[Any, ...]]) -> Options:
    """One value of each key, in sections."""
    made: Options = {}
    for key, values in choices.items():
        section, _, name = key.rpartition(".")
        (made.setdefault(section, {}) if section else made)[name] = lot.choice(values)
    return made


def trainings(lot: random.Random) -> Iterator[tuple[Way, Way]]:
    """A training, computed in two ways."""
    while True:
        what = drawn(lot, LEARNED)
        tasks = lot.sample(TASKS, k=lot.choice((1, 1, 2)))
        ways = [found for _ in range(40) if (found := way(lot, what, tasks))]
        if len(ways) > 1:
            one, another = ways[:2]
            yield one, next((way for way in ways if way[0] != one[0]), another)


def way(lot: random.Random, what: Options, tasks: list[Options]) -> Way | None:
    """None where the job would be refused with a clear error."""
    how, ranks = drawn(lot, COMPUTED), lot.choice(RANKS)
    keep = how.pop("data")
    options = BASE | what | how | {"data": [task | keep for task in tasks]}
    faults = faults_of(sessions.config(**options), ranks)
    assert all(key and fault for key, fault in faults)
    return None if faults else (ranks, options)


def learn(ranks: Ranks, box: Path, options: Options, until: int) -> list[float]:
    """Losses of the steps from where the box's checkpoint stands; a look and a save at the third one."""
    session = sessions.begin(ranks, box, options)
    points = sessions.learn(session, session.start, min(until, SAVED))
    if session.start < SAVED:
        if options["stage"] == "operator":
            Validation(session).evaluate(session, lambda: None, lambda: False)
        session.save(SAVED, points[-1][0], durable=True)
    points += sessions.learn(session, max(session.start, SAVED), until)
    session.loader.close()
    return [loss for loss, _ in points]


def prepared(root: Path, options: Options) -> Path:
    """A box for the training, which begins from a checkpoint of the stage before where there is one."""
    box = sessions.prepare(root, **options)
    if former := FORMER[options["stage"]]:
        before = usual(options, former)
        other = prepared(root.with_name(f"{root.name}-{former}"), before)
        together(learn, 1, other, before, SAVED)
        (box / layout.RESUME).symlink_to(other / layout.CHECKPOINTS)
    return box


def usual(options: Options, stage: str) -> Options:
    """The same model and tasks in another stage, computed as usual."""
    same = {key: options[key] for key in ("seed", "batch", "unroll", "model", "data", *BASE)}
    return same | {"stage": stage, "evaluate_every": SAVED}


@pytest.mark.parametrize("number", range(COUNT))
def test_how_a_training_is_computed_changes_no_loss(number: int, tmp_path: Path) -> None:
    (ranks, options), (others, other) = next(trainings(random.Random(1000 * SEED + number)))
    print(ranks, options, others, other, sep="\n")
    box = prepared(tmp_path / "one", options)
    losses, *told = together(learn, ranks, box, options, LAST)
    assert all(rank == losses for rank in told)
    assert all(map(math.isfinite, losses))
    twin, *_ = together(learn, others, prepared(tmp_path / "other", other), other, LAST)
    resumed, *_ = together(learn, others, box, other, LAST)
    if options["precision"] == "fp32":
        assert twin == pytest.approx(losses, abs=TOLERANCE)
        assert resumed == pytest.approx(losses[SAVED:], abs=TOLERANCE)
