"""Contents of a checkpoint: tensors by names that no wrapper changes, and a state for the rest."""

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

from vastrun.trainer.checkpoints.scored_folder import CheckpointScore

STATE = "state.json"
METADATA = ".metadata"
"""File of torch with the place of each tensor."""
MODEL, OPTIMIZER, EMA = "model.", "optimizer.", "ema."
"""Prefixes of the names of tensors."""


@dataclass(frozen=True, kw_only=True)
class TrainerState:
    """Everything of a checkpoint but its tensors: `state.json`.

    There is no random state and no position of a loader: random numbers, and the windows of a step, are
    functions of the seed and the step.
    """

    step: int
    """Number of steps that the run has done, over all of its stages."""
    first_step: int = 0
    """Steps that the run had done when the stage of this checkpoint began."""
    stages: tuple[dict[str, Any], ...] = ()
    """Results of the stages before, as in `run/stages.json`."""
    samples: int
    """Windows that were trained on, over all ranks."""
    loss: float | None
    """Last reported loss."""
    validation_nrmse: float | None = None
    """Validation score after exactly this step; None: not evaluated then, or not finite."""
    config: dict[str, Any]
    """The job's `train:` section."""
    made_by: dict[str, Any]
    """Origin: run and its W&B run, commit, version of torch, plan."""
    scaler: dict[str, Any]
    """State of the gradient scaler; empty except for fp16."""

    @property
    def score(self) -> CheckpointScore | None:
        """Return the score that selects the best checkpoint; None: this one cannot be the best."""
        by = "validation_nrmse" if self.config.get("evaluate_every") else "loss"
        value: float | None = getattr(self, by)
        return None if value is None else CheckpointScore(by=by, value=value)


def tensors_of(
    model: nn.Module, optimizers: Sequence[Optimizer], ema: Mapping[str, Tensor] | None
) -> dict[str, Tensor]:
    """Return the tensors of the training, not copies: `model.*`, `optimizer.*` and `ema.*`.

    The names are the same for every strategy and any number of ranks. An optimiser before its first step gets
    its state now. Its numbers (rates, betas) are not included: they follow from the config and the step.
    """
    # Flat names, parameter by parameter, which are equal for a shard and a complete model.
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
    """Remove the gradients within the context.

    torch creates an optimiser's state only while no parameter has a gradient; CUDA graphs keep theirs.
    """
    new = [optimizer for optimizer in optimizers if not optimizer.state]
    parameters = [p for optimizer in new for group in optimizer.param_groups for p in group["params"]]
    gradients = [p.grad for p in parameters]
    for parameter in parameters:
        parameter.grad = None
    yield
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
