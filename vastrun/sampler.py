"""Sampler: yields the samples of one rank to a torch DataLoader, in the order of `epochs.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from torch.utils.data import Sampler

from vastrun.epochs import batch_of, steps_per_epoch


class EpochSampler(Sampler[int]):
    """The samples of one rank, epoch by epoch. `batch` is the global batch, of all ranks together.

        sampler = EpochSampler(len(dataset), batch=64, rank=rank, world_size=world_size)
        loader = DataLoader(dataset, sampler=sampler, batch_size=64 // world_size)
        for epoch in range(sampler.epoch, epochs):
            sampler.set_epoch(epoch)
            for batch in loader:
                train(batch)
                sampler.advance()

    A DataLoader reads ahead, so only the loop knows the current step: it reports that with `advance`.
    A saved state can be loaded on any number of ranks that divides the batch. Raises ValueError for a batch
    that the ranks cannot share evenly, or that is larger than `total` where the remainder is dropped.
    """

    def __init__(
        self,
        total: int,
        *,
        batch: int,
        rank: int,
        world_size: int,
        seed: int = 0,
        remainder: Literal["drop", "pad"] = "drop",
    ) -> None:
        if batch % world_size:
            raise ValueError(f"a batch of {batch} cannot be shared evenly by {world_size} ranks")
        self._order: dict[str, Any] = {"seed": seed, "batch": batch, "total": total, "remainder": remainder}
        self._steps_per_epoch = steps_per_epoch(batch=batch, total=total, remainder=remainder)
        self._share = batch // world_size
        self._rank = rank
        self._step = 0

    @property
    def epoch(self) -> int:
        """Return the epoch of the next step, counted from 0."""
        return self._step // self._steps_per_epoch

    def set_epoch(self, epoch: int) -> None:
        """Continue with `epoch`: from its beginning, or, if it is the current one, from the next step."""
        if epoch != self.epoch:
            self._step = epoch * self._steps_per_epoch

    def advance(self, steps: int = 1) -> None:
        """Count `steps` more steps as trained."""
        self._step += steps

    def __iter__(self) -> Iterator[int]:
        mine = slice(self._rank * self._share, (self._rank + 1) * self._share)
        for step in range(self._step, self._end_of_epoch):
            yield from batch_of(step=step, **self._order)[mine].tolist()

    def __len__(self) -> int:
        """Return the number of samples that are left for this rank in the epoch."""
        return (self._end_of_epoch - self._step) * self._share

    def state_dict(self) -> dict[str, Any]:
        """Return the state to save with a checkpoint: the order of the samples, and the next step."""
        return {**self._order, "step": self._step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state. Raises ValueError when it belongs to another order of samples."""
        order = {name: state[name] for name in self._order}
        if order != self._order:
            raise ValueError(f"the state belongs to the order {order}, this sampler has {self._order}")
        self._step = state["step"]

    @property
    def _end_of_epoch(self) -> int:
        return (self.epoch + 1) * self._steps_per_epoch
