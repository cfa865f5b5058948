"""Trainings without supervisor, files and metrics: what ranks that are `together` learn."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from tests.trainer.conftest import SMALL, Box
from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.records import read_as
from vastrun.trainer import data
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.distributed.rank import Heartbeat
from vastrun.trainer.engine.resume import resume_session
from vastrun.trainer.engine.session import Session
from vastrun.trainer.engine.session_builder import set_up
from vastrun.trainer.engine.step import train_step
from vastrun.trainer.job.config import TrainConfig

STEPS = 20


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One training, as every rank sees it."""

    losses: list[float]
    norms: list[float]
    weights: dict[str, Tensor]
    """Whole tensors, as they were drawn."""
    gradients: dict[str, Tensor]
    """Of the first step, whole."""


def prepare(folder: Path, **settings: Any) -> Path:
    """A box with the data of the small training, with these values replaced."""
    box = Box(folder)
    for task in config(**settings).data:
        data.generate(task, box.path / layout.DATA)
    return box.path


def config(**settings: Any) -> TrainConfig:
    """The small training, with these values replaced."""
    made: TrainConfig = read_as(TrainConfig, {**SMALL, **settings})
    return made


def begin(ranks: Ranks, box: Path, settings: dict[str, Any]) -> Session:
    """A session as the loop gets it."""
    return resume_session(
        set_up(replace(ranks, rank=replace(ranks.rank, box=box)), Job.read(box), config(**settings))
    )


def learn(session: Session, first: int, last: int) -> list[tuple[float, float]]:
    """Loss and norm of the gradient of the steps from `first` to before `last`."""
    heart = Heartbeat(session.ranks.rank.box / layout.HEARTBEATS / f"rank-{session.ranks.rank.rank}")
    points = []
    for step in range(first, last):
        session, losses = train_step(session, step, heart)
        loss, *_, norm = session.ranks.mean_of(*losses)
        points.append((loss, norm))
    return points


def curves(ranks: Ranks, box: Path, jobs: dict[str, dict[str, Any]]) -> dict[str, Curve]:
    """Several trainings, one after the other. `clone` in a name: each block returns a copy of its output."""
    return {name: curve(ranks, box, settings, clone="clone" in name) for name, settings in jobs.items()}


def curve(ranks: Ranks, box: Path, settings: dict[str, Any], *, clone: bool = False) -> Curve:
    session = begin(ranks, box, settings)
    if clone:
        for block in session.operator.blocks:
            block.register_forward_hook(lambda _module, _inputs, output: output.clone())
    weights = whole(session.operator.state_dict())
    points = learn(session, 0, 1)
    gradients = whole({name: p.grad for name, p in session.operator.named_parameters() if p.grad is not None})
    points += learn(session, 1, STEPS)
    session.loader.close()
    losses, norms = zip(*points, strict=True)
    return Curve(losses=list(losses), norms=list(norms), weights=weights, gradients=gradients)


def types_in_use(ranks: Ranks, box: Path, settings: dict[str, Any]) -> dict[str, torch.dtype]:
    """Of each parameter of the operator while a step uses it."""
    session, types = begin(ranks, box, settings), {}
    for path, module in session.operator.named_modules():

        def note(module: nn.Module, _inputs: Any, path: str = path) -> None:
            types.update({f"{path}.{name}": p.dtype for name, p in module.named_parameters(recurse=False)})

        module.register_forward_pre_hook(note)
    learn(session, 0, 1)
    session.loader.close()
    return types


def whole(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies of all of each tensor; every rank must call it."""
    return {
        name: (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()
        for name, tensor in tensors.items()
    }


def uninitialised_is_nan() -> None:
    """Memory that nobody has written to reads as NaN from now on."""
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True


def parameters(model: nn.Module) -> dict[str, Tensor]:
    return whole(dict(model.named_parameters()))
