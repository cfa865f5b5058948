"""Determinism: kernels that return the same bits each time, and what else must not change for the same bits.

`train.deterministic`. The variables that cuBLAS and NCCL read are in `supervision/environment.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch

from vastrun.trainer.engine.plan import Plan

_SHAPES = 64
"""Maximum number of input shapes that a compiled function is compiled for. Torch's own limit, 8, is less than
several tasks and their evaluations have; beyond it torch runs the function without compiling it."""

_PLANNED = ("strategy", "world_size", "micro_batch", "precision")
"""Fields of the plan that decide in which order numbers are added."""


def use_deterministic_kernels() -> None:
    """Let torch use only deterministic kernels in this process, and raise RuntimeError where it has none.

    For `scaled_dot_product_attention` this excludes cuDNN, and makes the backward passes of flash and
    memory-efficient attention deterministic (aten/src/ATen/native/transformers/cuda), with a learned bias,
    too: its gradient is written once for each sample, and summed afterwards. `warn_only` would not do that.
    """
    import torch._dynamo.config as dynamo
    import torch._inductor.config as inductor

    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    # Torch would fill all memory that it hands out, with a kernel for each allocation. That only helps a
    # program that reads what it has not written, and a test shows that this one does not (test_session.py).
    torch.utils.deterministic.fill_uninitialized_memory = False
    if compiles_deterministically():
        inductor.deterministic = True  # no kernel is chosen by timing
        # Else kernels that are compiled after a second shape are those of any shape: which ones a shape gets
        # would depend on the shapes before it, and a resumed run begins with others.
        dynamo.automatic_dynamic_shapes = False
        dynamo.recompile_limit = max(dynamo.recompile_limit, _SHAPES)


def compiles_deterministically() -> bool:
    """Tell whether torch.compile can choose kernels without timing them: torch 2.10 and later."""
    import torch._inductor.config as inductor

    return hasattr(inductor, "deterministic")


def name_of_device(device: torch.device) -> str:
    """Return the name of a GPU, or `cpu`."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def promise(device: torch.device) -> str:
    """Return the line of the log that says what the option means."""
    kind = "GPU" if device.type == "cuda" else "CPU"
    return (
        "deterministic: a resumed run repeats an uninterrupted one bit for bit, on the same number of ranks, "
        f"the same kind of {kind} and the same torch"
    )


def differences(saved_by: Mapping[str, Any], plan: Plan, device: str) -> list[str]:
    """Return what has changed since a checkpoint was saved that changes the last bits of what follows.

    `saved_by` is what a checkpoint says of its run; an older checkpoint says less, and counts as changed.
    """
    before, now = _facts(saved_by), _facts(described(plan, device))
    return [f"{name} was {before[name]}, and is {now[name]}" for name in now if before[name] != now[name]]


def described(plan: Plan, device: str) -> dict[str, Any]:
    """Return what a checkpoint says of the run that saved it, as far as its bits depend on it."""
    return {"torch": str(torch.__version__), "device": device, "plan": asdict(plan)}


def _facts(described: Mapping[str, Any]) -> dict[str, str]:
    plan = described.get("plan")
    planned = plan if isinstance(plan, Mapping) else {}
    named = {"torch": described.get("torch"), "the device": described.get("device")}
    return {
        name: str(value) for name, value in {**named, **{key: planned.get(key) for key in _PLANNED}}.items()
    }
