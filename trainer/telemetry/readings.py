"""Readings: figures that the device has, read without waiting for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What the device said after `step`."""

    step: int
    values: list[float]


class Readings:
    """On CUDA a reading is there one call later, when its copy has long come through; on a CPU at once."""

    def __init__(self) -> None:
        self._on_the_way: tuple[int, Tensor, Any] | None = None

    def after(self, step: int, values: Tensor) -> Reading | None:
        """Send `values`, a vector, on their way; return the reading that has arrived."""
        if values.device.type == "cpu":
            return Reading(step=step, values=values.tolist())
        arrived = self.arrived()
        copy = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        copy.copy_(values, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        self._on_the_way = (step, copy, event)
        return arrived

    def arrived(self) -> Reading | None:
        """Wait for the last one: before a checkpoint, and at the end."""
        if self._on_the_way is None:
            return None
        step, copy, event = self._on_the_way
        self._on_the_way = None
        event.synchronize()
        return Reading(step=step, values=copy.tolist())
