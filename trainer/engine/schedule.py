"""Schedule: the learning rate of each step. All courses but `plateau` are pure functions of the step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from trainer.contract.config import OptimConfig

_LAST_SHARE = 0.01

# A loss must fall by this share to count as better: else noise would put every drop off.
_BETTER = 1e-3


class Schedule:
    """A linear warm-up, then the course that the job names, down to a hundredth of the full rate at most."""

    def __init__(self, config: OptimConfig, steps: int) -> None:
        self._config = config
        self._warmup = round(config.warmup * steps)
        self._steps = max(1, steps - self._warmup)
        self._best, self._best_at, self._dropped = math.inf, self._warmup, 1.0

    def rate(self, step: int) -> float:
        """Return the rate of `step`, counted from 0."""
        config = self._config
        if step < self._warmup:
            return config.lr * (step + 1) / self._warmup
        if config.schedule == "plateau":
            share = self._dropped
        else:
            share = _COURSES[config.schedule](step - self._warmup, self._steps, config)
        return config.lr * (_LAST_SHARE + (1 - _LAST_SHARE) * share)

    def observe(self, step: int, loss: float) -> None:
        """Note the loss after `step` steps: all ranks must be told the same."""
        if loss < self._best * (1 - _BETTER):
            self._best, self._best_at = loss, step
        elif step - max(self._best_at, self._warmup) >= self._config.drop_after:
            self._best_at, self._dropped = step, self._dropped * self._config.drop

    def state_dict(self) -> dict[str, Any]:
        best = self._best if math.isfinite(self._best) else None  # JSON has no infinity
        return {"best": best, "best_at": self._best_at, "dropped": self._dropped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._best = math.inf if state["best"] is None else state["best"]
        self._best_at, self._dropped = state["best_at"], state["dropped"]


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
