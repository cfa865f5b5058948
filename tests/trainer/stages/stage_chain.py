"""Stages one after the other, each in a box of its own, upon the checkpoint of the one before."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from tests.trainer import sessions
from tests.trainer.conftest import Box
from vastrun.contract import layout
from vastrun.trainer import data
from vastrun.trainer.distributed.group import Ranks


@dataclass(frozen=True, kw_only=True)
class Leg:
    """One stage."""

    name: str
    former: str | None = None
    """The leg whose checkpoint it begins from."""
    settings: dict[str, Any]
    until: int = sessions.STEPS


@dataclass(frozen=True, kw_only=True)
class Learned:
    """One leg, as every rank sees it."""

    start: int
    losses: list[float]
    weights: dict[str, Tensor]
    """At its end, whole."""
    moved: set[str]
    """Parameters that have a gradient, or had one."""


def prepare(root: Path, legs: list[Leg]) -> None:
    """A box for each leg; the data are made once."""
    for leg in legs:
        for task in sessions.config(**leg.settings).data:
            data.generate(task, root / layout.DATA)
        box = Box(root / leg.name).path
        (box / layout.DATA).symlink_to(root / layout.DATA)
        if leg.former:
            (box / layout.RESUME).symlink_to(root / leg.former / layout.CHECKPOINTS)


def walk(ranks: Ranks, root: Path, legs: list[Leg]) -> dict[str, Learned]:
    """All legs, by name; each ends with a checkpoint."""
    return {leg.name: _learn(ranks, root / leg.name, leg) for leg in legs}


def _learn(ranks: Ranks, box: Path, leg: Leg) -> Learned:
    session = sessions.begin(ranks, box, leg.settings)
    points = sessions.learn(session, session.start, leg.until)
    moved = {name for name, p in session.operator.named_parameters() if p.grad is not None}
    session.save(leg.until, points[-1][0], durable=True)
    session.loader.close()
    weights = sessions.whole(session.operator.state_dict())
    return Learned(start=session.start, losses=[loss for loss, _ in points], weights=weights, moved=moved)
