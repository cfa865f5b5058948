"""Strategies: every one that a job file may name is there."""

from __future__ import annotations

from typing import get_args, get_type_hints

from trainer.contract.config import TrainConfig
from trainer.strategies import STRATEGIES


def test_every_strategy_of_the_job_file_is_in_the_registry() -> None:
    assert set(get_args(get_type_hints(TrainConfig)["strategy"])) == {"auto", *STRATEGIES}
