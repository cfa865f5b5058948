"""Weights: how many there are; the first ones, the same for every strategy, device and number of ranks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import torch
from torch import nn


def materialise(module: nn.Module, when_drawn: Callable[[nn.Module], None] = lambda _: None) -> None:
    """Put weights and buffers of a module that was built on the meta device on the CPU.

    They are drawn from torch's one stream of random numbers, children first, as if the module were built on
    the CPU right away. `when_drawn` gets each module when all of it is there. Every module that owns tensors
    must fill all of them, buffers too, in `reset_parameters`.
    """
    for child in module.children():
        materialise(child, when_drawn)
    if any(tensor.is_meta for tensor in _own(module)):
        module.to_empty(device="cpu", recurse=False)
        assert hasattr(module, "reset_parameters"), f"{type(module).__name__} cannot fill its own tensors"
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()
    when_drawn(module)


def move(module: nn.Module, device: torch.device) -> nn.Module:
    """Put all of a module on a device. Fake tensors (trainer/workload) cannot be moved, and need not be."""
    return module if device.type == "cpu" else module.to(device)


def move_buffers(module: nn.Module, device: torch.device) -> None:
    """Put the buffers of a module on a device, its parameters left as they are."""
    for part in module.modules():
        for name, buffer in part.named_buffers(recurse=False):
            if buffer.device.type != device.type:
                part._buffers[name] = buffer.to(device)


def size_of(module: nn.Module) -> int:
    """Count the numbers that are learned."""
    return sum(parameter.numel() for parameter in module.parameters())


def frozen_in(module: nn.Module) -> int:
    """Count how many of them are not learned after all."""
    return sum(parameter.numel() for parameter in module.parameters() if not parameter.requires_grad)


def _own(module: nn.Module) -> chain:
    return chain(module.parameters(recurse=False), module.buffers(recurse=False))
