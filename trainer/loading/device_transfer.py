"""Device transfer: copies micro-batches from the machine's memory to the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from vastrun.trainer.data.trajectories import Windows


@dataclass(frozen=True, kw_only=True)
class DeviceTransfer:
    """Micro-batch whose copy to the device has started."""

    windows: Windows
    arrived: torch.cuda.Event | None = None

    def wait(self) -> Windows:
        """Make the current stream wait for the copy, and return the micro-batch. The host does not wait."""
        if self.arrived is not None:
            stream = torch.cuda.current_stream()
            stream.wait_event(self.arrived)
            for tensor in self.windows.tensors.values():
                tensor.record_stream(stream)
        return self.windows


def use_device(device: torch.device) -> None:
    """Set the device of the calling thread, which otherwise is the first GPU, another rank's.

    Leaving the stream of another GPU would then already open a context on the first one.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)


def make_transfer(device: torch.device, *, pin: bool, reused: bool) -> Callable[[Windows], DeviceTransfer]:
    """Return a function that copies micro-batches to `device`; `reused`: the source may be overwritten.

    On a GPU the copies run on a separate stream. From pinned memory, which torch caches, they block neither
    the host nor the training.
    """
    if device.type != "cuda":
        return lambda windows: DeviceTransfer(windows=windows.map(Tensor.clone) if reused else windows)
    stream = torch.cuda.Stream(device)

    def transfer(windows: Windows) -> DeviceTransfer:
        with torch.cuda.stream(stream):
            there = windows.map(
                lambda tensor: (tensor.pin_memory() if pin else tensor).to(device, non_blocking=pin)
            )
            return DeviceTransfer(windows=there, arrived=stream.record_event())

    return transfer
