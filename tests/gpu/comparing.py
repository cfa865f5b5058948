"""Comparing: how far two curves of losses are apart, and how far they may be. Pure."""

import math
from collections.abc import Mapping, Sequence

from benchmarks.figures import Limit, max_limit
from tests.gpu.check import Figure

LIMITS: Mapping[str, Limit] = {
    "bitwise": max_limit(0.0),
    "fp32": max_limit(1e-5),
    "tf32": max_limit(1e-3),
    "bf16": max_limit(2e-3),
    "fp16": max_limit(2e-3),
}
"""How far the losses of 20 steps may be off, as a share.

Another device adds up in another order. With rounding imitated on a CPU, 20 steps came to 1.4e-7 in fp32,
4.2e-5 with TF32's products and 1.7e-4 in bf16: each limit is below what the next coarser format does.
"""


def furthest(losses: Sequence[float], reference: Sequence[float]) -> float:
    """Return the largest difference as a share of the reference; infinity where a loss is not finite.

    Raises ValueError for curves of different lengths, or none.
    """
    if len(losses) != len(reference) or not reference:
        raise ValueError(f"{len(losses)} losses beside {len(reference)}")
    shares = [_share(loss, expected) for loss, expected in zip(losses, reference, strict=True)]
    return max(shares)


def beside(curves: Mapping[str, Sequence[float]], reference: Sequence[float], precision: str) -> list[Figure]:
    """Return a figure for each curve: how far it is off; with the limit of a precision."""
    return [
        Figure(name=name, value=furthest(losses, reference), unit="off", limit=LIMITS[precision])
        for name, losses in curves.items()
    ]


def fell(losses: Sequence[float], *, by: float = 0.1) -> bool:
    """Tell whether a loss is finite all the way, and lower in the end, by that share at least."""
    return all(map(math.isfinite, losses)) and losses[-1] < (1 - by) * losses[0]


def _share(loss: float, expected: float) -> float:
    if loss == expected:
        return 0.0
    share = abs(loss - expected) / max(abs(expected), 1e-12)
    return share if math.isfinite(share) else math.inf
