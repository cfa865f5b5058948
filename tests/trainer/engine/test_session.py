"""The engine of a training: its memory, its average, its messages, its refusals."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.trainer import sessions
from tests.trainer.conftest import SMALL, together
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.distributed.rank import Heartbeat
from vastrun.trainer.engine.step import train_step
from vastrun.trainer.errors import ConfigError
from vastrun.trainer.evaluation import evaluate

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

MUON = {"optim": {"name": "muon"}}


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sessions.prepare(tmp_path_factory.mktemp("engine") / "box")


def fresh(ranks: Ranks, box: Path) -> bool:
    sessions.uninitialised_is_nan()
    operator = sessions.begin(ranks, box, {"strategy": "fsdp2"}).operator
    return all(bool(tensor.isfinite().all()) for tensor in sessions.whole(operator.state_dict()).values())


def test_no_tensor_of_a_model_without_memory_stays_unwritten(box: Path) -> None:
    assert together(fresh, 2, box) == [True, True]


EMA = {"ema": 0.9, "data": {**SMALL["data"], "test": 7}}


@dataclass(frozen=True, kw_only=True)
class ScoreSummary:
    """A training that was interrupted by an evaluation."""

    losses: list[float]
    weights: dict[str, Tensor]
    average: dict[str, Tensor]
    after: dict[str, Tensor]
    scores: dict[str, float]


def scored(ranks: Ranks, box: Path, settings: dict[str, Any]) -> ScoreSummary:
    session = sessions.begin(ranks, box, settings)
    points = sessions.learn(session, 0, 10)
    weights = sessions.parameters(session.operator)
    with session.ema_weights(), session.autocast():
        average = sessions.parameters(session.operator)
        [data], [task] = session.config.data, session.tasks
        scores = evaluate(session.operator, 0, data, task, ranks, lambda: None).numbers()
    after = sessions.parameters(session.operator)
    points += sessions.learn(session, 10, sessions.STEPS)
    return ScoreSummary(
        losses=[loss for loss, _ in points], weights=weights, average=average, after=after, scores=scores
    )


@pytest.mark.slow
def test_scores_are_those_of_the_average_and_the_training_goes_on_as_if_nobody_had_looked(box: Path) -> None:
    (uninterrupted,) = together(sessions.curves, 1, box, {"single": {"micro_batch": 4}})
    (one,) = together(scored, 1, box, {"micro_batch": 4, **EMA})
    sharded, _ = together(scored, 2, box, {"strategy": "fsdp2", **EMA})
    assert sharded.scores == pytest.approx(one.scores, rel=1e-5)
    assert sharded.losses == one.losses == uninterrupted["single"].losses
    for name, weight in sharded.weights.items():
        assert torch.equal(sharded.after[name], weight), name
        assert torch.equal(sharded.average[name], one.average[name]), name
    assert any(not torch.equal(sharded.average[name], weight) for name, weight in sharded.weights.items())


def average_by_hand(ranks: Ranks, box: Path) -> bool:
    session = sessions.begin(ranks, box, {"ema": 0.2})
    average = sessions.parameters(session.operator)
    for step in range(5):
        sessions.learn(session, step, step + 1)
        decay = min(0.2, (1 + step) / (10 + step))  # the first weights are soon forgotten
        for name, weight in sessions.parameters(session.operator).items():
            average[name] = decay * average[name] + (1 - decay) * weight
    with session.ema_weights():
        found = sessions.parameters(session.operator)
    return all(torch.allclose(found[name], value, atol=1e-7) for name, value in average.items())


def test_the_average_follows_the_weights_of_every_step(box: Path) -> None:
    assert together(average_by_hand, 1, box) == [True]


class MachineCost(TorchDispatchMode):
    """How often each operator is called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls[str(func)] += 1
        return func(*args, **(kwargs or {}))


def exchanges(ranks: Ranks, box: Path, strategy: str) -> Counter[str]:
    session = sessions.begin(ranks, box, {"strategy": strategy, "micro_batch": 2})
    heart = Heartbeat(box / f"beat-{ranks.rank.rank}")
    with MachineCost() as counted:
        train_step(session, 0, heart)
    return counted.calls


@pytest.mark.slow
def test_ranks_exchange_gradients_once_however_many_micro_batches_a_step_has(box: Path) -> None:
    (ddp, _), (fsdp2, _) = (together(exchanges, 2, box, strategy) for strategy in ("ddp", "fsdp2"))
    assert ddp["c10d.allreduce_.default"] == 1
    assert fsdp2["c10d._reduce_scatter_base_.default"] == 3  # two blocks, and what belongs to none


def overflow(ranks: Ranks, box: Path, settings: dict[str, Any]) -> tuple[bool, float]:
    session = sessions.begin(ranks, box, {"strategy": "fsdp2", "precision": "fp16", **settings})
    before = sessions.parameters(session.operator)
    session.scaler.load_state_dict({**session.scaler.state_dict(), "scale": 2.0**60})
    sessions.learn(session, 0, 1)
    after = sessions.parameters(session.operator)
    return all(torch.equal(after[name], value) for name, value in before.items()), session.scaler.get_scale()


@pytest.mark.parametrize("settings", [{}, MUON], ids=["adamw", "muon"])
def test_a_step_whose_fp16_gradients_overflow_changes_no_weight_and_halves_the_scale(
    box: Path, settings: dict[str, Any]
) -> None:
    assert together(overflow, 2, box, settings) == [(True, 2.0**59)] * 2


def questions(ranks: Ranks, box: Path, settings: dict[str, Any]) -> int:
    """How often a step with fp16 waits for the device, to know a number."""
    session = sessions.begin(ranks, box, {"precision": "fp16", **settings})
    heart = Heartbeat(box / f"beat-{ranks.rank.rank}")
    session, _ = train_step(session, 0, heart)
    with MachineCost() as counted:
        train_step(session, 1, heart)
    return counted.calls["aten._local_scalar_dense.default"]


@pytest.mark.parametrize("settings", [{}, MUON], ids=["adamw", "muon"])
def test_a_step_in_fp16_never_waits_to_see_whether_it_overflowed(box: Path, settings: dict[str, Any]) -> None:
    assert together(questions, 1, box, settings) == [0]


def turned(ranks: Ranks, box: Path) -> tuple[int, int]:
    """The matrices of the model, and how many of them this rank turned in a step."""
    session = sessions.begin(ranks, box, {"strategy": "fsdp2", **MUON})
    matrices = sum(len(group["params"]) for group in session.optimizer.param_groups if group["orthogonal"])
    train_step(session, 0, Heartbeat(box / f"beat-{ranks.rank.rank}"))
    with MachineCost() as counted:
        session.optimizer.step()
    return matrices, counted.calls["aten.linalg_vector_norm.default"]


def test_each_sharded_matrix_is_turned_on_one_rank(box: Path) -> None:
    (matrices, first), (_, second) = together(turned, 2, box)
    assert matrices == first + second
    assert abs(first - second) <= 1


def refused(ranks: Ranks, box: Path, unfit: int) -> tuple[str, bool]:
    settings = {"strategy": "fsdp2", "fsdp2": {"cpu_offload": True}} if ranks.rank.rank == unfit else {}
    try:
        sessions.begin(ranks, box, settings)
    except ConfigError as error:
        return str(error), error.reported_elsewhere
    raise AssertionError("nobody refused")


def test_a_job_that_cannot_be_done_ends_every_rank_and_one_of_them_says_why(box: Path) -> None:
    text = "train.fsdp2.cpu_offload: needs a GPU to offload from"
    assert together(refused, 2, box, 1) == [(text, True), (text, False)]


EVERYTHING = {
    "strategy": "fsdp2",
    "precision": "fp16",
    "ema": 0.9,
    "optim": {"name": "muon", "schedule": "step", "drop_after": 2},
}


def interrupted(
    ranks: Ranks, box: Path, at: int
) -> tuple[list[tuple[float, float]], float, dict[str, Tensor]]:
    """What is learnt with a new beginning from a checkpoint; the last scale and average."""
    session = sessions.begin(ranks, box, EVERYTHING)
    session.scaler.load_state_dict({**session.scaler.state_dict(), "scale": 1024.0})
    points = sessions.learn(session, 0, at)
    session.save(at, points[-1][0], durable=True)
    session = sessions.begin(ranks, box, EVERYTHING)
    assert session.start == at
    points += sessions.learn(session, at, 8)
    with session.ema_weights():
        return points, session.scaler.get_scale(), sessions.parameters(session.operator)


@pytest.mark.slow
def test_everything_that_an_engine_remembers_is_in_its_checkpoint(tmp_path: Path) -> None:
    early, late = (together(interrupted, 2, sessions.prepare(tmp_path / f"box-{at}"), at)[0] for at in (4, 8))
    assert early[0] == late[0]
    assert early[1] == late[1] == 1024.0
    assert all(torch.equal(average, late[2][name]) for name, average in early[2].items())
