"""Clock: measure the time of steps, and the wait for data.

On CUDA the host runs ahead of the device, so events on the device measure the time. The host never waits for
them: a step whose events have not passed yet is counted at a later read.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Times of the last steps."""

    step_p50_s: float
    step_p99_s: float
    data_wait: float
    """Share of the time since the last read in which the host waited for data."""


@dataclass(frozen=True, kw_only=True)
class Stamps:
    """Time stamps of one kind of device: take one, seconds between two, and whether one has passed."""

    take: Callable[[], Any]
    seconds: Callable[[Any, Any], float]
    have_passed: Callable[[Any], bool]


class StepClock:
    """Measures the steps of one rank. Each step is `begin` and `end`."""

    def __init__(self, device: torch.device) -> None:
        self._stamps = _STAMPS[device.type]
        self._last: deque[float] = deque(maxlen=512)
        self._pending: deque[tuple[Any, Any]] = deque()
        self._waited_s = 0.0
        self._looked_at = time.perf_counter()
        self._began: Any = None

    def begin(self) -> None:
        """Record the start of a step."""
        self._began = self._stamps.take()

    @contextmanager
    def waiting_for_data(self) -> Iterator[None]:
        """Count the time within as waiting for data, on the host's clock."""
        began = time.perf_counter()
        yield
        self._waited_s += time.perf_counter() - began

    def end(self) -> None:
        """Record the end of the step."""
        self._pending.append((self._began, self._stamps.take()))

    def look(self) -> StepTimes | None:
        """Return the times up to now; None before the first step has passed. Resets `data_wait`."""
        # Events pass in the order in which they were recorded: after one that has not, none has.
        while self._pending and self._stamps.have_passed(self._pending[0][-1]):
            self._last.append(self._stamps.seconds(*self._pending.popleft()))
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


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def record_cuda_event() -> torch.cuda.Event:
    """Return an event that the device passes once it has done all that was queued."""
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


_STAMPS = {
    "cpu": Stamps(
        take=time.perf_counter, seconds=lambda first, second: second - first, have_passed=lambda _: True
    ),
    "cuda": Stamps(
        take=record_cuda_event,
        seconds=lambda first, second: first.elapsed_time(second) / 1000,
        have_passed=lambda event: event.query(),
    ),
}
