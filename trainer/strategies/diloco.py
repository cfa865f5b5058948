"""DiLoCo: DDP within a node; the nodes meet every so many steps (engine/meetings.py)."""

from __future__ import annotations

from dataclasses import replace

from trainer.strategies.ddp import DDP

DILOCO = replace(DDP, by_node=True)
