"""Deterministic trainings under their supervisor: one that is killed and resumed ends with the same bits."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.onstart.supervision.forked import Supervised, Train
from vastrun.contract import layout

pytestmark = pytest.mark.torch

KILLED_AT, SAVED, STEPS = 90, 80, 200
DETERMINISTIC: Mapping[str, Any] = {
    "deterministic": True,
    "steps": STEPS,
    "batch": 12,
    "checkpoint_every": SAVED,
    "ema": 0.9,
}
KILL = {"what": "SIGKILL", "where": "backward", "step": KILLED_AT, "saved": SAVED}


def saved_tensors(run: Supervised) -> dict[str, bytes]:
    """Return the bits of each tensor of the last checkpoint: weights, optimiser state and average."""
    import torch

    from vastrun.contract.checkpoint_folder import name_of, newest_first
    from vastrun.trainer.checkpoints.reader import CheckpointReader, read_tensors

    newest, *_ = newest_first(run.box / layout.CHECKPOINTS)
    assert newest.name == name_of(STEPS)
    saved = CheckpointReader(newest).metadata.state_dict_metadata
    tensors = {
        name: torch.empty(each.size, dtype=each.properties.dtype)  # type: ignore[union-attr]
        for name, each in saved.items()
    }
    read_tensors(newest, tensors)
    return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}


# Three ranks: the sum of two numbers has one order, that of three has several.
@pytest.mark.parametrize(
    ("ranks", "options"),
    [(3, {"strategy": "ddp"}), (3, {"strategy": "fsdp2"}), (1, {"micro_batch": 4})],
    ids=["ddp", "fsdp2", "single"],
)
@pytest.mark.slow
def test_a_run_that_lost_a_rank_ends_with_the_bits_of_an_uninterrupted_one(
    ranks: int, options: dict[str, Any], train: Train
) -> None:
    settings = {**DETERMINISTIC, **options}
    whole = train(ranks=ranks, train=settings)
    assert whole.outcome().reason == "finished", whole.log()
    resumed = train({**KILL, "rank": ranks - 1}, ranks=ranks, train=settings)
    outcome = resumed.outcome()

    assert outcome.reason == "finished", resumed.log()
    first, second = outcome.starts
    assert (first.reason, first.checkpoint, second.reason) == ("signal", SAVED, "finished")
    assert resumed.losses() == whole.losses()
    assert saved_tensors(resumed) == saved_tensors(whole)
