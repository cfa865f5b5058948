"""A rank whose memory has room for so many windows at once: more of them fail, at a place drawn by lot."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor, nn

from trainer.session import Session

_LATEST = 40
"""Modules that have computed something by then, in every pass of the small model."""


class Shortage:
    """Runs out of memory in a forward pass, or in the backward pass through what that computed."""

    def __init__(self, session: Session, *, room: int, lot: random.Random) -> None:
        self.room = room
        self.failures = 0
        self._lot = lot
        self._batch = session.plan.micro_batch
        self._until = -1
        for module in session.operator.modules():
            module.register_forward_hook(self._after)
        session.operator.register_forward_pre_hook(self._before)

    def _before(self, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        self._batch = len(inputs[0])
        if self._batch > self.room and self._until < 0:
            # Early outputs come late in the backward pass, when ranks have gradients and exchange them.
            self._until = min(self._lot.randrange(_LATEST), self._lot.randrange(_LATEST))

    def _after(self, _module: nn.Module, _inputs: Any, output: Any) -> None:
        if self._batch <= self.room or self._until < 0:
            return
        self._until -= 1
        if self._until >= 0:
            return
        if self._lot.random() < 0.5 and isinstance(output, Tensor) and output.requires_grad:
            output.register_hook(lambda _: self._fail())
        else:
            self._fail()

    def _fail(self) -> None:
        self.failures += 1
        self._until = -1
        raise torch.OutOfMemoryError("injected")
