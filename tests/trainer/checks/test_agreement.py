"""Ranks that must hold the same: silence while they do, and the parameter and the rank when they do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.trainer.conftest import together
from vastrun.trainer.checks.agreement import DisagreementError, check_facts, check_replicas, digest, layout_of
from vastrun.trainer.distributed.group import Ranks

pytestmark = pytest.mark.torch

NUMBERS = {"learning rate": 0.1, "loss": 2.5}


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 1))


def model_of_many_types() -> nn.Module:
    layers = model()
    layers.register_buffer("phase", torch.polar(torch.ones(3), torch.arange(3.0)))
    layers.register_parameter("rough", nn.Parameter(torch.ones(7, dtype=torch.bfloat16)))
    return layers


def fault(check: Callable[..., None], *arguments: Any) -> str | None:
    try:
        check(*arguments)
    except DisagreementError as error:
        return str(error)
    return None


def replicas(ranks: Ranks) -> dict[str, str | None]:
    mine = model_of_many_types()
    odd = ranks.rank.rank == 1
    faults = {"equal": fault(check_replicas, ranks, 7, mine, NUMBERS)}
    with torch.no_grad():
        mine[0].weight[4, 2] += 1e-7 * odd
        faults["a last bit"] = fault(check_replicas, ranks, 7, mine, NUMBERS)
        mine[0].weight[4, 2] = float("nan")
        faults["NaN on all"] = fault(check_replicas, ranks, 7, mine, NUMBERS)
        mine.phase[1] = 1j if odd else mine.phase[1]
        faults["a complex buffer"] = fault(check_replicas, ranks, 7, mine, NUMBERS)
        mine.rough[0] = 1.0 + ranks.rank.rank
        faults["nobody like another"] = fault(check_replicas, ranks, 7, mine, NUMBERS)
    rate = {**NUMBERS, "learning rate": 0.2 if odd else 0.1}
    faults["a number"] = fault(check_replicas, ranks, 7, model(), rate)
    return faults


def shards(ranks: Ranks) -> list[str | None]:
    from torch.distributed.fsdp import fully_shard

    mine = fully_shard(model())  # type: ignore[arg-type]
    equal = fault(check_replicas, ranks, 3, mine, NUMBERS)
    mine[1].running_mean += ranks.rank.rank
    return [equal, fault(check_replicas, ranks, 3, mine, NUMBERS)]


def facts(ranks: Ranks) -> list[str | None]:
    wide = nn.Linear(3, 4 + (ranks.rank.rank == 0))
    told = [
        {"the configuration": digest({"lr": 1, "steps": 2}), "torch": "2.13"},
        {"torch": f"2.{13 + ranks.rank.rank}"},
        {"the model": layout_of(wide)},
    ]
    return [fault(check_facts, ranks, each) for each in told]


def test_the_rank_that_differs_is_named_with_what_differs_and_all_ranks_hear_it() -> None:
    first, *others = together(replicas, 3)
    assert others == [first, first]
    assert first == {
        "equal": None,
        "a last bit": "after step 7 rank 1 of 3 differs from the others in parameter 0.weight",
        "NaN on all": None,
        "a complex buffer": "after step 7 rank 1 of 3 differs from the others in buffer phase",
        "nobody like another": "after step 7 the 3 ranks differ in parameter rough and in 1 more",
        "a number": "after step 7 rank 1 of 3 differs from the others in learning rate",
    }


def test_of_a_sharded_model_what_every_rank_holds_whole_is_compared() -> None:
    expected = "after step 3 the 2 ranks differ in buffer 1.running_mean"
    assert together(shards, 2) == [[None, expected]] * 2


def test_ranks_that_were_told_different_things_do_not_begin() -> None:
    same, versions, layouts = together(facts, 2)[0]
    assert same is None
    assert versions == "the 2 ranks differ in torch: rank 0 has 2.13, rank 1 has 2.14"
    assert layouts is not None
    assert layouts.startswith("the 2 ranks differ in the model: rank 0 has ")
