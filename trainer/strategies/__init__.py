"""Strategies: ways to distribute a model over the ranks, one file each, and their registry."""

from __future__ import annotations

from vastrun.trainer.strategies.ddp import DDP
from vastrun.trainer.strategies.fsdp2 import FSDP2
from vastrun.trainer.strategies.single import SINGLE
from vastrun.trainer.strategies.strategy import Strategy

STRATEGIES: dict[str, Strategy] = {"single": SINGLE, "ddp": DDP, "fsdp2": FSDP2}
