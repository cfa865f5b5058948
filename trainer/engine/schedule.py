"""Schedule: the learning rate of each step, a pure function of the step."""

from __future__ import annotations

import math
from collections.abc import Callable

from trainer.contract.config import OptimConfig

_LAST_SHARE = 0.01


class Schedule:
    """A linear warm-up, then the course that the job names, down to a hundredth of the full rate at most."""

    def __init__(self, config: OptimConfig, steps: int) -> None:
        self._config = config
        self._warmup = round(config.warmup * steps)
        self._steps = max(1, steps - self._warmup)

    def rate(self, step: int) -> float:
        """Return the rate of `step`, counted from 0."""
        config = self._config
        if step < self._warmup:
            return config.lr * (step + 1) / self._warmup
        share = _COURSES[config.schedule](step - self._warmup, self._steps, config)
        return config.lr * (_LAST_SHARE + (1 - _LAST_SHARE) * share)


def _cosine(step: int, steps: int, config: OptimConfig) -> float:  # noqa: ARG001
    return 0.5 * (1 + math.cos(math.pi * step / steps))


def _linear(step: int, steps: int, config: OptimConfig) -> float:  # noqa: ARG001
    return 1 - step / steps


def _step(step: int, steps: int, config: OptimConfig) -> float:  # noqa: ARG001
    return config.drop ** (step // config.drop_after)


def _constant(step: int, steps: int, config: OptimConfig) -> float:  # noqa: ARG001
    return 1.0


_COURSES: dict[str, Callable[[int, int, OptimConfig], float]] = {
    "cosine": _cosine,
    "linear": _linear,
    "step": _step,
    "constant": _constant,
}
