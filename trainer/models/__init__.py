"""Models: the registry of the networks that the trainer can train."""

from collections.abc import Callable, Sequence

from vastrun.trainer.job.config import ModelConfig
from vastrun.trainer.models.fno import FNO
from vastrun.trainer.models.latent_operator import LatentOperator
from vastrun.trainer.models.operator import Domain, NetworkOperator
from vastrun.trainer.models.own_model import OwnModel
from vastrun.trainer.models.spectral_operator import SpectralOperator

MODELS: dict[str, Callable[[ModelConfig, Sequence[Domain]], NetworkOperator]] = {
    "latent": LatentOperator,
    "fno": FNO,
    "spectral": SpectralOperator,
}


def make(config: ModelConfig, domains: Sequence[Domain]) -> NetworkOperator:
    """Make the operator named by `config.name` for these tasks. Raises ConfigError for a user's model."""
    return MODELS.get(config.name, OwnModel)(config, domains)
