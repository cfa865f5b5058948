"""The clock of the steps: how long they take, how long they wait for data, how long a rank works alone.

On CUDA the host runs ahead of the device, so that the device's own events are the stamps; nobody waits for
them: a step whose events have not come to pass is told at a later look.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

_REMEMBERED = 512
"""Steps that the percentiles are taken of."""


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Of the last steps."""

    step_p50_s: float
    step_p99_s: float
    data_wait: float
    """The share of the time in which the host waited for data, since the last look."""


@dataclass(frozen=True, kw_only=True)
class Stamps:
    """Points in time, as a kind of device takes them."""

    take: Callable[[], Any]
    seconds: Callable[[Any, Any], float]
    have_passed: Callable[[Any], bool]


class StepClock:
    """Stamps the steps of one rank."""

    def __init__(self, device: torch.device) -> None:
        self._stamps = _STAMPS[device.type]
        self._last: deque[float] = deque(maxlen=_REMEMBERED)
        self._pending: deque[tuple[Any, Any, Any]] = deque()
        self._alone: list[float] = []
        self._waited_s = 0.0
        self._looked_at = time.perf_counter()
        self._began: Any = None
        self._met: Any = None

    def begin(self) -> None:
        """A step begins."""
        self._began, self._met = self._stamps.take(), None

    @contextmanager
    def waiting_for_data(self) -> Iterator[None]:
        """The host waits for data meanwhile."""
        began = time.perf_counter()
        yield
        self._waited_s += time.perf_counter() - began

    def meet(self) -> None:
        """From here on, in this step, this rank waits for the others: it has worked alone so far."""
        if self._met is None:
            self._met = self._stamps.take()

    def end(self) -> None:
        """The step is over."""
        ended = self._stamps.take()
        self._pending.append((self._began, self._met or ended, ended))

    def look(self) -> StepTimes | None:
        """The times up to now; None before a step has passed."""
        self._settle()
        now = time.perf_counter()
        waited, lasted = self._waited_s, now - self._looked_at
        self._waited_s, self._looked_at = 0.0, now
        if not self._last:
            return None
        ordered = sorted(self._last)
        return StepTimes(
            step_p50_s=_quantile(ordered, 0.5),
            step_p99_s=_quantile(ordered, 0.99),
            data_wait=waited / max(lasted, 1e-9),
        )

    def alone_s(self) -> float:
        """How long this rank worked before it met the others, in the mean of the steps since last asked."""
        self._settle()
        alone, self._alone = self._alone, []
        return sum(alone) / len(alone) if alone else 0.0

    def _settle(self) -> None:
        while self._pending and self._stamps.have_passed(self._pending[0][-1]):
            began, met, ended = self._pending.popleft()
            self._last.append(self._stamps.seconds(began, ended))
            self._alone.append(self._stamps.seconds(began, met))


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _cuda_event() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


_STAMPS = {
    "cpu": Stamps(
        take=time.perf_counter, seconds=lambda first, second: second - first, have_passed=lambda _: True
    ),
    "cuda": Stamps(
        take=_cuda_event,
        seconds=lambda first, second: first.elapsed_time(second) / 1000,
        have_passed=lambda event: event.query(),
    ),
}
