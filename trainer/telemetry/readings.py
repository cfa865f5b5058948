"""Readings: values that the device computes, read without waiting, with the time when it computed them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The values of one step."""

    step: int
    values: list[float]
    at_s: float
    """Time at which the device had computed them, in seconds of the host's monotonic clock."""


class Transfers(Protocol):
    """The transfer of values from one kind of device to the host."""

    late: bool
    """True where the host runs ahead of the device, so that a value arrives after it was asked for."""
    began_s: float
    """Time from which on values could be sent, in seconds of the host's monotonic clock."""

    def send(self, values: Tensor) -> Any:
        """Start the transfer of a vector, without waiting for the device."""
        ...

    def receive(self, sent: Any) -> tuple[list[float], float]:
        """Wait for what `send` returned. Return the values, and when the device had computed them."""
        ...


class CpuTransfers:
    """A CPU has computed what the host asks for."""

    late = False

    def __init__(self) -> None:
        self.began_s = time.monotonic()

    def send(self, values: Tensor) -> tuple[list[float], float]:
        """Return the values and the time."""
        return values.tolist(), time.monotonic()

    def receive(self, sent: tuple[list[float], float]) -> tuple[list[float], float]:
        """Return what was sent."""
        return sent


class CudaTransfers:
    """Copies to pinned memory. Events on the device say when it came to each, not when the host looked."""

    late = True

    def __init__(self) -> None:
        self._event = _recorded_event()
        self._event.synchronize()
        self.began_s = self._at_s = time.monotonic()

    def send(self, values: Tensor) -> tuple[Tensor, torch.cuda.Event]:
        """Queue a copy, and an event behind it."""
        copy = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        copy.copy_(values, non_blocking=True)
        return copy, _recorded_event()

    def receive(self, sent: tuple[Tensor, torch.cuda.Event]) -> tuple[list[float], float]:
        """Wait for the copy."""
        copy, event = sent
        had_passed = event.query()
        event.synchronize()
        now_s = time.monotonic()
        # An event that had to be waited for passes now, which also corrects a drift between the two clocks.
        since_last_s = self._event.elapsed_time(event) / 1000
        self._at_s = min(now_s, self._at_s + since_last_s) if had_passed else now_s
        self._event = event
        return copy.tolist(), self._at_s


def _recorded_event() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


class Readings:
    """On CUDA a reading arrives one report later, when its copy is long done; on a CPU at once."""

    def __init__(self, transfers: Transfers) -> None:
        self._transfers = transfers
        self._sent: tuple[int, Any] | None = None

    @classmethod
    def of(cls, device: torch.device) -> Readings:
        """Return the readings of a device. Waits for it once."""
        return cls(_TRANSFERS[device.type]())

    @property
    def began_s(self) -> float:
        """Time from which on values could be sent, in seconds of the host's monotonic clock."""
        return self._transfers.began_s

    def after(self, step: int, values: Tensor) -> Reading | None:
        """Send a vector of `values`; return the reading that has arrived."""
        earlier = self.arrived() if self._transfers.late else None
        self._sent = (step, self._transfers.send(values))
        return earlier if self._transfers.late else self.arrived()

    def arrived(self) -> Reading | None:
        """Wait for the last reading: before a checkpoint, and at the end. None: it was returned before."""
        if self._sent is None:
            return None
        step, sent = self._sent
        self._sent = None
        values, at_s = self._transfers.receive(sent)
        return Reading(step=step, values=values, at_s=at_s)


_TRANSFERS: dict[str, type[CpuTransfers] | type[CudaTransfers]] = {"cpu": CpuTransfers, "cuda": CudaTransfers}
