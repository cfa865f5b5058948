"""Complex pairs: store complex parameters as pairs of real numbers, which all ranks can send and update.

Neither gloo, FSDP2 nor torch's fused AdamW takes complex numbers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize


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
