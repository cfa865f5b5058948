"""Features: models, tasks and stages of which the other checks train none, on a GPU beside the CPU."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gpu import trainings
from tests.gpu.check import Place, Seen, expect
from tests.gpu.checks.running import take_steps_without_waiting
from tests.gpu.comparing import beside
from tests.gpu.ranks import together
from vastrun.contract import layout

_SMALL: trainings.Settings = {"train": 16, "test": 4, "points": 16, "frames": 6}
_ADVECTION: trainings.Settings = {"task": "advection", "betas": [1.0], **_SMALL}
_BURGERS: trainings.Settings = {"task": "burgers", "nus": [0.1], **_SMALL}
_DARCY: trainings.Settings = {"task": "darcy", **_SMALL}
_CUBE: trainings.Settings = {"task": "compressible_3d", **_SMALL, "dt": 0.01}
_TINY: trainings.Settings = {"name": "latent", "dim": 32, "depth": 1, "heads": 2}
_OWN_MODEL: trainings.Settings = {
    "name": trainings.OWN_MODEL,
    "options": {"width": 32, "depth": 2, "heads": 2},
}
_ON_A_LINE: Mapping[str, trainings.Settings] = {
    "spectral loss": {"model": _TINY, "objective": {"spectral": 0.1, "conservation": 0.1}},
    "selective checkpointing": {"model": _TINY, "activation_checkpointing": "selective"},
    "full checkpointing": {"model": _TINY, "activation_checkpointing": "full"},
    "own model": {"model": _OWN_MODEL},
    "own model, sharded": {"model": _OWN_MODEL, "strategy": "fsdp2"},
}
_SPECTRAL: trainings.Settings = {"name": "spectral", "dim": 16, "depth": 2, "modes": 4}
_ON_OTHER_GRIDS: Mapping[str, trainings.Settings] = {
    "three tasks": {"data": [_ADVECTION, _BURGERS, _DARCY], "unroll": 2},
    "fno in 2-D": {"data": _DARCY, "model": {"name": "fno", "dim": 16, "depth": 2, "modes": 4}},
    "spectral on a line": {"data": _ADVECTION, "model": _SPECTRAL},
    "spectral between walls": {"data": _DARCY, "model": _SPECTRAL},
    "latent in 3-D": {"data": _CUBE, "model": _TINY},
    "fno in 3-D": {"data": _CUBE, "model": {"name": "fno", "dim": 8, "depth": 2, "modes": 4}},
}


def check_models(place: Place, folder: Path) -> Seen:
    """Train each kind of loss, checkpointing and mix of tasks, beside the CPU."""
    figures = []
    for number, jobs in enumerate((_ON_A_LINE, *({name: job} for name, job in _ON_OTHER_GRIDS.items()))):
        losses = []
        for name, where in (("here", place), ("cpu", place.cpu)):
            box = trainings.box_of(folder / f"{name}-{number}", where, next(iter(jobs.values())))
            losses.append(together(where, trainings.curves, 1, box, jobs)[0])
        for name, reference in losses[1].items():
            figures += beside({name: losses[0][name]}, reference, "fp32")
    return Seen(figures=figures)


@dataclass(frozen=True, kw_only=True)
class _Leg:
    """A training that starts from the checkpoint of another one."""

    settings: trainings.Settings
    former: str | None = None


_BOTH: trainings.Settings = {"data": [_BURGERS, _DARCY], "unroll": 2}
_LEGS: Mapping[str, _Leg] = {
    "operator": _Leg(settings={**_BOTH, "ema": 0.5}),
    "refine": _Leg(settings={**_BOTH, "stage": "refine"}, former="operator"),
    "distill": _Leg(settings={**_BOTH, "stage": "distill"}, former="refine"),
    "frozen codec": _Leg(settings={**_BOTH, "freeze": "codec"}, former="operator"),
    "operator of darcy": _Leg(settings={"data": _DARCY}),
    "steady": _Leg(settings={"data": _DARCY, "stage": "steady"}, former="operator of darcy"),
}


def check_stages(place: Place, folder: Path) -> Seen:
    """Train each stage upon the one before it, beside the CPU; no step of one waits for the GPU."""
    found, reference = _walked(place, folder / "here"), _walked(place.cpu, folder / "cpu")
    figures = []
    for name, losses in found.items():
        figures += beside({name: losses}, reference[name], "fp32")
    return Seen(figures=figures)


def _walked(place: Place, folder: Path) -> dict[str, list[float]]:
    for name, leg in _LEGS.items():
        box = trainings.box_of(folder / name, place, leg.settings)
        if leg.former:
            (box / layout.RESUME).symlink_to(folder / leg.former / layout.CHECKPOINTS)
    found: dict[str, list[float]] = together(place, _walk, 1, folder)[0]
    return found


def _walk(ranks: Any, folder: Path) -> dict[str, list[float]]:
    """Return the losses of each leg, saved at its end for those that build upon it."""
    found = {}
    for name, leg in _LEGS.items():
        settings = {**leg.settings, "steps": 3 * trainings.STEPS}
        session = trainings.begin(ranks, folder / name, settings)
        end = session.start + trainings.STEPS
        session, found[name] = trainings.learn(session, session.start, end)
        session.save(end, found[name][-1], durable=True)
        take_steps_without_waiting(session, name, end, end + 3)
        session.loader.close()
    return found


def check_evaluation(place: Place, folder: Path) -> Seen:
    """Evaluate during a training and after it, in bf16, with an average of the weights."""
    settings: trainings.Settings = {
        "precision": "bf16",
        "ema": 0.9,
        "evaluate_every": 10,
        "data": [{**_ADVECTION, "validation": 4}, {**_DARCY, "validation": 4}],
        "unroll": 2,
    }
    with trainings.supervised(trainings.box_of(folder / "box", place, settings)) as run:
        outcome = run.outcome()
        trainings.expect_reason(run, outcome, "finished")
    final = json.loads((run.box / layout.FINAL).read_text())
    lines = [json.loads(line) for line in (run.box / layout.METRICS).read_text().splitlines()]
    validated = [line["validation_nrmse"] for line in lines if "validation_nrmse" in line]
    expect(len(validated) == 2, f"{len(validated)} evaluations during the training, not 2")
    scores = final["scores"]
    expect(all(math.isfinite(value) for value in scores.values()), f"the scores are {scores}")
    return Seen(text=f"{len(scores)} scores, {len(validated)} evaluations during the training")
