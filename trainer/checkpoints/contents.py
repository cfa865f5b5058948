"""What a checkpoint holds: tensors by names that no wrapper changes, and a state for all the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
)
from torch.optim import Optimizer

from vastrun.contract.checkpoint_folder import CheckpointScore

STATE = "state.json"
METADATA = ".metadata"
"""Written by torch: which tensor lies where."""
MODEL, OPTIMIZER, EMA, OUTER = "model.", "optimizer.", "ema.", "outer."
"""How the names of tensors begin."""


@dataclass(frozen=True, kw_only=True)
class TrainerState:
    """All of a checkpoint that is no tensor: `state.json`.

    There is no random state and no position of a loader: what is random, and which windows a step trains on,
    are functions of the seed and the step.
    """

    step: int
    """Steps that were done."""
    samples: int
    """Windows that were seen, over all ranks."""
    loss: float | None
    """The last one that was told."""
    validation_nrmse: float | None = None
    """After this very step; None: nobody looked then, or it was no number."""
    config: dict[str, Any]
    """The job's `train:` section."""
    made_by: dict[str, Any]
    """Where it comes from: run and its W&B run, commit, version of torch, plan."""
    scaler: dict[str, Any]
    """Empty but for fp16."""

    @property
    def score(self) -> CheckpointScore | None:
        """What the best checkpoint is chosen by; None: this one is not to be chosen."""
        by = "validation_nrmse" if self.config.get("evaluate_every") else "loss"
        value: float | None = getattr(self, by)
        return None if value is None else CheckpointScore(by=by, value=value)


def tensors_of(
    model: nn.Module, optimizers: Sequence[Optimizer], ema: Mapping[str, Tensor] | None
) -> dict[str, Tensor]:
    """Return the very tensors that are trained, not copies: `model.*`, `optimizer.*` and `ema.*`.

    The same names for every strategy and any number of ranks. An optimiser that has not made a step yet gets
    its state now. Its numbers (rates, betas) are not among them: they follow from the config and the step.
    """
    # Flat names, parameter by parameter: those of a shard and of a whole model are then the same.
    flat = StateDictOptions(flatten_optimizer_state_dict=True)
    with _without_gradients(optimizers):
        moments = get_optimizer_state_dict(model, optimizers, options=flat)
    return {
        **{f"{MODEL}{name}": value for name, value in get_model_state_dict(model).items()},
        **{
            f"{OPTIMIZER}{name.removeprefix('state.')}": value
            for name, value in moments.items()
            if name.startswith("state.")
        },
        **{f"{EMA}{name}": value for name, value in (ema or {}).items()},
    }


@contextmanager
def _without_gradients(optimizers: Sequence[Optimizer]) -> Iterator[None]:
    """Take the gradients away meanwhile.

    torch gives an optimiser its state only while no parameter has a gradient; CUDA graphs keep theirs.
    """
    new = [optimizer for optimizer in optimizers if not optimizer.state]
    parameters = [p for optimizer in new for group in optimizer.param_groups for p in group["params"]]
    kept = [p.grad for p in parameters]
    for parameter in parameters:
        parameter.grad = None
    yield
    for parameter, gradient in zip(parameters, kept, strict=True):
        parameter.grad = gradient
