"""A rank whose memory has room for so many windows at once: more of them fail, at a place drawn by lot."""

import random
from typing import Any

import torch
from torch import Tensor, nn

from vastrun.trainer.engine.session import Session

_MODULES = 30
"""That a frame passes through at least."""


class Shortage:
    """Runs out of memory in a forward pass, or in the backward pass through what that computed.

    The model is used twice in a pass. Only behind its first use, where the backward pass comes last, are
    there gradients, and messages with them.
    """

    def __init__(self, session: Session, *, room: int, lot: random.Random) -> None:
        self.room = room
        self.failures = 0
        self._lot = lot
        self._size = 0
        self._left = -1
        """Modules to go before the place; it has been passed when negative."""
        session.operator.register_forward_pre_hook(self._before)
        for module in session.operator.modules():
            module.register_forward_hook(self._after)

    def _before(self, _: nn.Module, inputs: tuple[Any, ...]) -> None:
        if len(inputs[0]) == self._size:
            return
        self._size = len(inputs[0])
        place = self._lot.randrange(_MODULES) + self._lot.choice((0, _MODULES))
        self._left = place if self._size > self.room else -1

    def _after(self, _module: nn.Module, _inputs: Any, output: Any) -> None:
        self._left -= 1
        if self._left != -1:
            return
        if self._lot.random() < 0.7 and isinstance(output, Tensor) and output.requires_grad:
            output.register_hook(self._fail)
        else:
            self._fail()

    def _fail(self, *_: Tensor) -> None:
        self.failures += 1
        # As torch's own allocator says it, and as a library does that allocates by itself.
        raise self._lot.choice((torch.OutOfMemoryError("injected"), RuntimeError("CUFFT_ALLOC_FAILED")))
