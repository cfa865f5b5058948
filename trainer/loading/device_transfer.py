"""Device transfer: micro-batches on their way from the machine's memory to the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from vastrun.trainer.data.trajectories import Windows


@dataclass(frozen=True, kw_only=True)
class DeviceTransfer:
    """A micro-batch on the device, perhaps not all of it yet."""

    windows: Windows
    arrived: torch.cuda.Event | None = None

    def accept(self) -> Windows:
        """Return the micro-batch, for kernels that are started from now on. The host does not wait."""
        if self.arrived is not None:
            stream = torch.cuda.current_stream()
            stream.wait_event(self.arrived)
            for tensor in self.windows.tensors.values():
                tensor.record_stream(stream)
        return self.windows


def take_device(device: torch.device) -> None:
    """Make `device` the one that the calling thread uses: else it is the first GPU, whoever's that is.

    Merely to leave another GPU's stream would then open a context on the first one.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)


def transfer_to(device: torch.device, *, pin: bool, lent: bool) -> Callable[[Windows], DeviceTransfer]:
    """Return what puts micro-batches on `device`. Those that are only `lent` may be overwritten afterwards.

    On a GPU the copies run on a stream of their own. From pinned memory, which torch keeps and uses again,
    they hold up neither the host nor the training.
    """
    if device.type != "cuda":
        return lambda windows: DeviceTransfer(windows=windows.each(Tensor.clone) if lent else windows)
    stream = torch.cuda.Stream(device)

    def transfer(windows: Windows) -> DeviceTransfer:
        with torch.cuda.stream(stream):
            there = windows.each(
                lambda tensor: (tensor.pin_memory() if pin else tensor).to(device, non_blocking=pin)
            )
            return DeviceTransfer(windows=there, arrived=stream.record_event())

    return transfer
