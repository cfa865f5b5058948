"""Agreement: what must be equal on all ranks is, to the last bit; where it is not, who stands alone."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from vastrun.trainer.distributed.group import Ranks

_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class DisagreementError(Exception):
    """Ranks that must hold the same do not: what they train together is worth nothing from then on."""


def check_facts(ranks: Ranks, facts: Mapping[str, str]) -> None:
    """Check that every rank was told the same before it begins. Raises DisagreementError, on all of them."""
    told: list[Mapping[str, str]] = ranks.all_gather_objects(facts)
    for name in facts:
        values = [other.get(name) for other in told]
        if alone := _alone(values):
            other = next(rank for rank, value in enumerate(values) if value != values[alone[0]])
            raise DisagreementError(
                f"{_differ(alone, len(told))} in {name}: "
                f"rank {alone[0]} has {values[alone[0]]}, rank {other} has {values[other]}"
            )


def check_replicas(ranks: Ranks, step: int, model: nn.Module, numbers: Mapping[str, float]) -> None:
    """Check that all ranks hold the same `numbers`, parameters and buffers after `step`.

    Those that are split over the ranks are left out. Raises DisagreementError, on all of them. Waits for the
    device.
    """
    held = dict(_replicated(model))
    names = [*numbers, *held]
    # By their bits: as numbers NaN differs from itself, and 0.0 equals -0.0.
    sums = np.concatenate([np.array([*numbers.values()]).view(np.int64), _checksums([*held.values()])])
    told = np.stack(ranks.all_gather_objects(sums))
    wrong = np.flatnonzero((told != told[0]).any(axis=0))
    if len(wrong):
        first = wrong[0]
        more = f" and in {len(wrong) - 1} more" if len(wrong) > 1 else ""
        fault = f"{_differ(_alone(told[:, first].tolist()), len(told))} in {names[first]}{more}"
        raise DisagreementError(f"after step {step} {fault}")


def layout_of(model: nn.Module) -> str:
    """Digest the names, shapes and types of all that `model` holds."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return digest([(name, list(tensor.shape), str(tensor.dtype)) for name, tensor in tensors])


def digest(value: Any) -> str:
    """Make a short name for a value that is one of JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def _replicated(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Return, by name, what every rank holds whole."""
    for kind, tensors in (("parameter", model.named_parameters()), ("buffer", model.named_buffers())):
        for name, tensor in tensors:
            if not isinstance(tensor, DTensor):
                yield f"{kind} {name}", tensor.detach()
            elif all(placement.is_replicate() for placement in tensor.placements):
                yield f"{kind} {name}", tensor.detach().to_local()


def _checksums(tensors: list[Tensor]) -> NDArray[np.int64]:
    """Sum each one's bits, as whole numbers: the same on any device; NaN counts like any value."""
    sums = [_bits(tensor).sum(dtype=torch.int32) for tensor in tensors]
    return torch.stack(sums).cpu().numpy().astype(np.int64) if sums else np.empty(0, np.int64)


def _bits(tensor: Tensor) -> Tensor:
    plain = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return plain.view(_WORDS[plain.element_size()])


def _alone(values: list) -> list[int]:
    """Return the ranks whose value is not that of most; all when no value is. Empty when all are equal."""
    (value, times), *others = Counter(values).most_common(2)
    if not others:
        return []
    if times == others[0][1]:
        return list(range(len(values)))
    return [rank for rank, own in enumerate(values) if own != value]


def _differ(alone: list[int], world_size: int) -> str:
    if len(alone) == world_size:
        return f"the {world_size} ranks differ"
    if len(alone) == 1:
        return f"rank {alone[0]} of {world_size} differs from the others"
    return f"ranks {', '.join(map(str, alone))} of {world_size} differ from the others"
