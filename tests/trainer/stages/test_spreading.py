"""Stages on several ranks: the same training as on one, and nothing moves in what does not learn."""

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainer import sessions
from tests.trainer.conftest import Box, Start, together
from vastrun.contract import layout
from vastrun.trainer import data
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.errors import ConfigError


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
TWO = (
    [
        Leg(name=f"{strategy} {name}", former=former, settings={**settings, "strategy": strategy})
        for name, former, settings in (
            ("refine", "operator", REFINE),
            ("distill", "refine", DISTILL),
            ("steady", "operator of darcy", STEADY),
        )
        for strategy in ("ddp", "fsdp2")
    ]
    + [
        Leg(
            name=f"{strategy} refine {precision}",
            former="operator",
            settings={**REFINE, "strategy": strategy, "precision": precision},
            until=2,
        )
        for strategy in ("ddp", "fsdp2")
        for precision in ("bf16", "fp16")
    ]
    + [Leg(name="fsdp2 refine again", former="fsdp2 refine", settings={**REFINE, "steps": 22}, until=22)]
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("road")
    prepare(folder, ONE + TWO)
    return folder


@pytest.fixture(scope="module")
def one(root: Path) -> dict[str, Learned]:
    """By one rank; the other tests go on from its checkpoints."""
    learned: dict[str, Learned] = together(walk, 1, root, ONE, within_s=200)[0]
    return learned


@pytest.mark.slow
def test_a_stage_is_the_same_however_it_is_spread(root: Path, one: dict[str, Learned]) -> None:
    two, other = together(walk, 2, root, TWO, within_s=200)
    assert all(two[leg.name].losses == other[leg.name].losses for leg in TWO)
    for name in ("refine", "distill", "steady"):
        for strategy in ("ddp", "fsdp2"):
            spread = two[f"{strategy} {name}"]
            assert spread.losses == pytest.approx(one[name].losses, abs=1e-5), (strategy, name)
            assert spread.start == 0
            assert {part.split(".")[0] for part in spread.moved} == {"denoiser"}, (strategy, name)
    for strategy, precision in product(("ddp", "fsdp2"), ("bf16", "fp16")):
        half = two[f"{strategy} refine {precision}"]
        assert half.losses == pytest.approx(one["refine"].losses[:2], rel=0.02), (strategy, precision)
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


@pytest.mark.slow
def test_the_final_record_sets_a_stage_beside_the_operator_alone(
    root: Path, one: dict[str, Learned], start_ranks: Start
) -> None:
    leg = Leg(name="whole", former="operator of darcy", settings={**STEADY, "sampler": {"draws": 2}})
    prepare(root, [leg])
    box = Box(root / leg.name, **leg.settings)
    assert start_ranks(box, 2).wait() == [0, 0]
    scores = box.json(layout.FINAL)["scores"]
    assert (scores["stage_calls"], scores["operator_calls"]) == (6, 1)
    assert scores["stage_helps"] == (scores["rollout_nrmse"] < scores["operator_nrmse"])
    assert min(scores["stage_ms"], scores["operator_ms"], scores["stage_spread"]) > 0
    assert "stage steady initialized from step-000005 of operator" in box.log(0)
    verdict = "helps" if scores["stage_helps"] else "does NOT help"
    told = f"darcy: steady {verdict}: rollout nRMSE"
    assert told in box.log(0)
    assert told in (root / leg.name / layout.EVALUATION / "report.md").read_text()
    assert "steady" not in box.log(1)


def refusals(ranks: Ranks, root: Path, legs: list[Leg]) -> list[tuple[str, bool]]:
    """For each what this rank says, and whether it leaves it to another to say it."""
    said = []
    for leg in legs:
        with pytest.raises(ConfigError) as caught:
            sessions.begin(ranks, root / leg.name, leg.settings)
        said.append((str(caught.value), caught.value.reported_elsewhere))
    return said


@pytest.mark.slow
def test_a_stage_without_a_checkpoint_that_fits_is_refused_in_a_line_by_one_rank(
    root: Path, one: dict[str, Learned]
) -> None:
    other_model = {**REFINE, "model": {"name": "latent", "dim": 32, "depth": 1, "heads": 2, "patch": 4}}
    legs = [
        Leg(name="no former", settings=REFINE),
        Leg(name="too early", former="operator", settings=DISTILL),
        Leg(name="back again", former="refine", settings=BOTH),
        Leg(name="other model", former="operator", settings=other_model),
        Leg(name="other tasks", former="operator", settings={"data": BURGERS, "stage": "refine"}),
    ]
    prepare(root, legs)
    first, second = together(refusals, 2, root, legs)
    assert [elsewhere for _, elsewhere in first + second] == [False] * 5 + [True] * 5
    no_former, too_early, back_again, model, tasks = (text for text, _ in first)
    assert "refine starts from a checkpoint of operator, and there is none" in no_former
    assert "distill starts from one of refine, but step-000020 is a checkpoint of operator" in too_early
    assert "operator starts from nothing, but step-000020 is a checkpoint of refine" in back_again
    assert model == "step-000020 is a checkpoint of another model: depth is 2 there, and 1 here"
    assert tasks == "train.data: the tasks are burgers, but step-000020 is a checkpoint of burgers, darcy"
