"""Cores of the latent operator: what moves the tokens.

Shapes: B samples, S tokens, D channels, G tokens by axis of one level.
"""

from __future__ import annotations

from torch import Tensor, nn

from trainer.contract.config import ModelConfig
from trainer.models.attention import Attention, Block, WindowAttention, blocked, joined


class TransformerStack(nn.Module):
    """A stack of blocks in which every token attends to all."""

    def __init__(self, config: ModelConfig, tokens: tuple[int, ...]) -> None:  # noqa: ARG002 - as all cores
        super().__init__()
        self.blocks = nn.ModuleList(
            Block(config, Attention(config.dim, config.heads)) for _ in range(config.depth)
        )

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """Map x (B, S, D) and condition (B, D) to (B, S, D)."""
        for block in self.blocks:
            x = block(x, condition)
        return x


class UNet(nn.Module):
    """Down to coarser grids of tokens and up again, past windows that see ever more of the domain."""

    def __init__(self, config: ModelConfig, tokens: tuple[int, ...]) -> None:
        super().__init__()
        self.depth = config.depth
        grids = [tuple(count >> level for count in tokens) for level in range(config.levels)]
        steps = len(grids) - 1
        self.blocks = nn.ModuleList(
            Block(config, WindowAttention(config, grid, shifted=number % 2 == 1))
            for grid in (*grids, *reversed(grids[:-1]))
            for number in range(config.depth)
        )
        self.merges = nn.ModuleList(PatchMerging(config.dim, grid) for grid in grids[:steps])
        self.splits = nn.ModuleList(PatchExpanding(config.dim, grid) for grid in reversed(grids[:steps]))

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """Map x (B, S, D) and condition (B, D) to (B, S, D)."""
        skipped = []
        for level, merge in enumerate(self.merges):
            x = self._level(level, x, condition)
            skipped.append(x)
            x = merge(x)
        x = self._level(len(self.merges), x, condition)
        for level, split in enumerate(self.splits, len(self.merges) + 1):
            x = self._level(level, split(x, skipped.pop()), condition)
        return x

    def _level(self, level: int, x: Tensor, condition: Tensor) -> Tensor:
        for number in range(level * self.depth, (level + 1) * self.depth):
            x = self.blocks[number](x, condition)
        return x


class PatchMerging(nn.Module):
    """Neighbours become one token: half as many along each axis."""

    def __init__(self, dim: int, grid: tuple[int, ...]) -> None:
        super().__init__()
        self.grid = grid
        self.content = nn.Linear(dim * 2 ** len(grid), dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, S, D) to (B, S / 2^N, D)."""
        pairs = blocked(x.unflatten(1, self.grid), (2,) * len(self.grid))
        merged: Tensor = self.content(pairs.flatten(2))
        return merged


class PatchExpanding(nn.Module):
    """Twice as many tokens along each axis, and to each what was there on the way down."""

    def __init__(self, dim: int, grid: tuple[int, ...]) -> None:
        super().__init__()
        self.grid = grid
        self.content = nn.Linear(dim, dim * 2 ** len(grid))
        self.skip = nn.Linear(dim, dim)

    def forward(self, x: Tensor, skipped: Tensor) -> Tensor:
        """Map x (B, S / 2^N, D) and skipped (B, S, D) to (B, S, D)."""
        size = (2,) * len(self.grid)
        neighbours = self.content(x).unflatten(2, (2 ** len(size), -1))
        finer: Tensor = joined(neighbours, self.grid, size).flatten(1, -2) + self.skip(skipped)
        return finer


CORES: dict[str, type[TransformerStack | UNet]] = {"plain": TransformerStack, "unet": UNet}
