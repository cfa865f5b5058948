"""FLOPs: count the floating-point operations of a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import (
    FlopCounterMode,
    flop_registry,
    sdpa_backward_flop_count,
    sdpa_flop_count,
    shape_wrapper,
)

from vastrun.trainer.data.trajectories import Windows


def training_flops(objective: nn.Module, windows: Windows) -> float:
    """Count forward and backward of these windows. Both are on the meta device: shapes are enough.

    Pass the unwrapped model: operations that a strategy repeats to save memory do not count.
    """
    with counting_flops() as counter:
        objective(windows)[0].backward()
    return float(counter.get_total_flops())


def counting_flops() -> FlopCounterMode:
    """Return a counter of matrix products, attention on any device, and Fourier transforms."""
    return FlopCounterMode(display=False, custom_mapping={**_FFT, **_ATTENTION_ON_CPUS})


def flops_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """Count one operation like `counting_flops`, which would keep the tensors alive."""
    packet = func._overloadpacket
    if packet in _WRAPPED:
        return int(_WRAPPED[packet](*args, **kwargs, out_val=result))
    return int(flop_registry[packet](*args, **kwargs, out_val=result)) if packet in flop_registry else 0


# Torch's counter supports matrix products, convolutions and attention on GPUs.
def _of_complex(shape: Sequence[int], dims: Sequence[int], *_: Any, **__: Any) -> int:
    """Count 5 n log2(n) for a transform of n points (Cooley and Tukey)."""
    points = math.prod(shape[dim] for dim in dims)
    return int(5 * math.prod(shape) * math.log2(max(2, points)))


_FFT: dict[Any, Callable[..., int]] = {
    torch.ops.aten._fft_c2c: _of_complex,
    # A real transform takes half the operations of a complex one.
    torch.ops.aten._fft_r2c: lambda shape, dims, *_, **__: _of_complex(shape, dims) // 2,
    torch.ops.aten._fft_c2r: lambda _, dims, *__, out_shape, **___: _of_complex(out_shape, dims) // 2,
}
_ATTENTION_ON_CPUS: dict[Any, Callable[..., int]] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: (
        lambda query, key, value, *_, **__: int(sdpa_flop_count(query, key, value))
    ),
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: (
        lambda grad, query, key, value, *_, **__: int(sdpa_backward_flop_count(grad, query, key, value))
    ),
}
_WRAPPED = {packet: shape_wrapper(count) for packet, count in {**_FFT, **_ATTENTION_ON_CPUS}.items()}
