"""Floating-point operations: how many a model takes, and how many a GPU could do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from trainer.data.trajectories import Windows


@dataclass(frozen=True, kw_only=True)
class Peak:
    """What a GPU could do at best, in TFLOP/s, with dense matrices."""

    half: float
    """bf16 and fp16 with sums in fp32."""
    single: float
    """fp32 outside of the tensor cores."""

    def flops_per_s(self, precision: str) -> float:
        """Return the peak for a precision of the job."""
        # TF32 has half the rate of bf16 on every GPU that has it.
        rates = {"fp32": self.single, "tf32": max(self.single, self.half / 2)}
        return 1e12 * rates.get(precision, self.half)


PEAKS = {
    "B200": Peak(half=2250, single=75),
    "H200": Peak(half=989.4, single=66.9),
    "H100 NVL": Peak(half=835, single=60),
    "H100 PCIe": Peak(half=756, single=51),
    "H100": Peak(half=989.4, single=66.9),
    "A100": Peak(half=312, single=19.5),
    "A800": Peak(half=312, single=19.5),
    "A40": Peak(half=149.7, single=37.4),
    "A30": Peak(half=165, single=10.3),
    "A10": Peak(half=125, single=31.2),
    "L40S": Peak(half=362, single=91.6),
    "L40": Peak(half=181, single=90.5),
    "L4": Peak(half=121, single=30.3),
    "RTX A6000": Peak(half=154.8, single=38.7),
    "RTX A5000": Peak(half=111.1, single=27.8),
    "RTX 6000 Ada": Peak(half=364.2, single=91.1),
    "RTX 5090": Peak(half=209.5, single=104.8),
    "RTX 4090": Peak(half=165.2, single=82.6),
    "RTX 4080": Peak(half=97.5, single=48.7),
    "RTX 3090 Ti": Peak(half=80, single=40),
    "RTX 3090": Peak(half=71, single=35.6),
}
"""By a part of the name; the longest that fits counts. Without sparsity: from NVIDIA's data sheets, and for
GeForce and RTX from the white papers of their architectures (GA102, AD102, GB202)."""


_OTHERS = frozenset({"D", "Ti", "SUPER", "Laptop", "Max-Q"})
"""Words of a name that make it another GPU."""


def peak_of(name: str) -> Peak | None:
    """Return the peak of a GPU by its full name; None for one that is not in the table."""
    words = f" {name.replace('-', ' ')} "
    part = max((part for part in PEAKS if f" {part} " in words), key=len, default="")
    if _OTHERS & (set(name.split()) - set(part.split())):
        return None
    return PEAKS.get(part)


def training_flops(objective: nn.Module, windows: Windows) -> float:
    """Count forward and backward of these windows. Both are on the meta device: shapes are enough.

    Give the plain model: what a way to train computes twice to save memory is no work of the model.
    """
    with FlopCounterMode(display=False, custom_mapping=_FFT) as counter:
        objective(windows)[0].backward()
    return float(counter.get_total_flops())


# The counter knows products of matrices, convolutions and attention.
def _of_complex(shape: Sequence[int], dims: Sequence[int], *_: Any, **__: Any) -> int:
    """Count 5 n log2(n) for a transform of n points (Cooley and Tukey)."""
    points = math.prod(shape[dim] for dim in dims)
    return int(5 * math.prod(shape) * math.log2(max(2, points)))


def _from_real(shape: Sequence[int], dims: Sequence[int], *_: Any, **__: Any) -> int:
    """Count half of what complex numbers take."""
    return _of_complex(shape, dims) // 2


def _to_real(_: Sequence[int], dims: Sequence[int], *__: Any, out_shape: Sequence[int], **___: Any) -> int:
    return _of_complex(out_shape, dims) // 2


_FFT = {
    torch.ops.aten._fft_c2c: _of_complex,
    torch.ops.aten._fft_r2c: _from_real,
    torch.ops.aten._fft_c2r: _to_real,
}
