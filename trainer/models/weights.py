"""Weights: initial values, the same for every strategy, device and number of ranks; moves and counts."""

from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from vastrun.trainer.models.operator import Network


def materialise(
    module: nn.Module, on_ready: Callable[[nn.Module], None] = lambda _: None, *, is_drawn: bool = False
) -> None:
    """Allocate and initialise, on the CPU, the tensors of a module that was built on the meta device.

    They are drawn from torch's global generator, children first, as if the module were built on the CPU.
    `on_ready` is called with each module once all of it is initialised. Every module that owns tensors must
    fill all of them, buffers too, in `reset_parameters`. With `is_drawn` all have their values already.
    """
    drawn = module.drawn_modules if isinstance(module, Network) else []
    for child in module.children():
        materialise(child, on_ready, is_drawn=is_drawn or child in drawn)
    if is_drawn:
        on_ready(module)
        return
    own = chain(module.parameters(recurse=False), module.buffers(recurse=False))
    if any(tensor.is_meta for tensor in own):
        module.to_empty(device="cpu", recurse=False)
        assert hasattr(module, "reset_parameters"), f"{type(module).__name__} cannot fill its own tensors"
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()
    on_ready(module)


def move(module: nn.Module, device: torch.device) -> nn.Module:
    """Move a module to a device. On a CPU nothing is moved: fake tensors (trainer/workload) cannot be."""
    return module if device.type == "cpu" else module.to(device)


def move_buffers(module: nn.Module, device: torch.device) -> None:
    """Move the buffers of a module to a device; its parameters stay."""
    for part in module.modules():
        for name, buffer in part.named_buffers(recurse=False):
            if buffer.device.type != device.type:
                part._buffers[name] = buffer.to(device)


def count_parameters(module: nn.Module) -> int:
    """Count the parameters of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


def count_frozen(module: nn.Module) -> int:
    """Count the frozen parameters of a module."""
    return sum(parameter.numel() for parameter in module.parameters() if not parameter.requires_grad)


class _FromPairs(nn.Module):
    """Conversion of pairs to complex numbers."""

    def forward(self, pairs: Tensor) -> Tensor:
        """Map (..., 2) to a complex tensor (...)."""
        return torch.view_as_complex(pairs)

    def right_inverse(self, values: Tensor) -> tuple[Tensor]:
        """Map a complex tensor (...) to (..., 2)."""
        # A tuple: torch lets only the tensors of a tuple have another type than the parameter. It also names
        # them `original0`; a parametrization of the user that returns one tensor is named `original`.
        return (torch.view_as_real(values.detach()).clone(),)


class _AnySubclass:
    """Base that comes first in a class, so that torch can derive from a class that rejects subclasses."""

    def __init_subclass__(cls, **_: Any) -> None:
        pass


def store_as_pairs(model: nn.Module) -> None:
    """Store the complex parameters of a model as pairs of real numbers.

    The model's code reads complex values as before, by the same attributes.
    """
    for module in list(model.modules()):
        names = [name for name, p in module.named_parameters(recurse=False) if p.is_complex()]
        if not names:
            continue
        kind: Any = type(module)
        metaclass: Any = type(kind)
        module.__class__ = metaclass(kind.__name__, (_AnySubclass, kind), {"__module__": kind.__module__})
        for name in names:
            parametrize.register_parametrization(module, name, _FromPairs())


def complex_tensors(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a state with the complex parameters under their own names, the inverse of `store_as_pairs`."""
    found = {}
    for name, tensor in tensors.items():
        module, _, stored = name.rpartition("parametrizations.")
        parameter, _, part = stored.partition(".")
        is_pair = part == "original0" and f"{module}parametrizations.{parameter}.original1" not in tensors
        found[module + parameter if is_pair else name] = torch.view_as_complex(tensor) if is_pair else tensor
    return found
