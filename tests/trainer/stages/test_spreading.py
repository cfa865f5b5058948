"""Stages on several ranks: the same training as on one, and nothing moves in what does not learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.conftest import together
from tests.trainer.stages.road import Learned, Leg, prepare, walk

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

SMALL = {"train": 16, "test": 4, "points": 16, "frames": 6}
BURGERS = {"task": "burgers", "nus": [0.1], **SMALL}
DARCY = {"task": "darcy", "keep": "host", **SMALL}
BOTH: dict[str, Any] = {"data": [BURGERS, DARCY]}
STEADY: dict[str, Any] = {"data": DARCY, "stage": "steady"}
REFINE, DISTILL = {**BOTH, "stage": "refine"}, {**BOTH, "stage": "distill"}

ONE = [
    Leg(name="operator", settings={**BOTH, "ema": 0.5}),
    Leg(name="refine", former="operator", settings=REFINE),
    Leg(name="distill", former="refine", settings=DISTILL),
    Leg(name="operator of darcy", settings={"data": DARCY}, until=5),
    Leg(name="steady", former="operator of darcy", settings=STEADY),
]
TWO = [
    Leg(name=f"{strategy} {name}", former=former, settings={**settings, "strategy": strategy})
    for name, former, settings in (
        ("refine", "operator", REFINE),
        ("distill", "refine", DISTILL),
        ("steady", "operator of darcy", STEADY),
    )
    for strategy in ("ddp", "fsdp2")
] + [Leg(name="fsdp2 refine again", former="fsdp2 refine", settings={**REFINE, "steps": 22}, until=22)]


def test_a_stage_is_the_same_however_it_is_spread(tmp_path: Path) -> None:
    """One test, so that its two launches are made once."""
    prepare(tmp_path, ONE + TWO)
    one: dict[str, Learned] = together(walk, 1, tmp_path, ONE, within_s=200)[0]
    two, other = together(walk, 2, tmp_path, TWO, within_s=200)
    assert all(two[leg.name].losses == other[leg.name].losses for leg in TWO)
    for name in ("refine", "distill", "steady"):
        for strategy in ("ddp", "fsdp2"):
            spread = two[f"{strategy} {name}"]
            assert spread.losses == pytest.approx(one[name].losses, abs=1e-5), (strategy, name)
            assert spread.start == 0
            assert {part.split(".")[0] for part in spread.moved} == {"denoiser"}, (strategy, name)
    what_does_not_learn_is_the_average_of_the_stage_before(one)
    again = two["fsdp2 refine again"]
    assert (again.start, len(again.losses)) == (20, 2)


def what_does_not_learn_is_the_average_of_the_stage_before(one: dict[str, Learned]) -> None:
    before = one["operator"].weights
    frozen = {
        name.removeprefix("operator."): value
        for name, value in one["distill"].weights.items()
        if name.startswith("operator.")
    }
    assert frozen.keys() == before.keys()
    same = {name for name, value in before.items() if torch.equal(value, frozen[name])}
    assert "scales.0.mean" in same
    assert "core.blocks.0.mlp.0.weight" not in same  # the weights themselves are not what was evaluated
    for name, value in one["refine"].weights.items():
        if name.startswith("operator."):
            assert torch.equal(value, frozen[name.removeprefix("operator.")]), name
        if name.startswith("denoiser."):
            teacher = one["distill"].weights[f"teacher.{name.removeprefix('denoiser.')}"]
            assert torch.equal(value, teacher), name
