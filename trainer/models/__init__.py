"""The models that the onboard trainer can train, and the list of them."""

from __future__ import annotations

from collections.abc import Callable

from trainer.config import ModelConfig
from trainer.models.fno import FNO
from trainer.models.latent_operator import LatentOperator
from trainer.models.operator import Operator

MODELS: dict[str, Callable[..., Operator]] = {"latent": LatentOperator, "fno": FNO}


def make(config: ModelConfig, *, grid: tuple[int, ...], channels: int = 1, conditions: int) -> Operator:
    """The operator that `config.name` names, for fields of `channels` channels on `grid`."""
    return MODELS[config.name](config, grid=grid, channels=channels, conditions=conditions)
