"""Determinism (`train.deterministic`): kernels that return the same bits each time, and what must not change.

The variables that cuBLAS and NCCL read are in `supervision/environment.py`.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch

from vastrun.trainer.engine.plan import Plan

_MAX_SHAPES = 64
"""Maximum number of input shapes that a compiled function is compiled for. Torch's own limit, 8, is less than
several tasks and their evaluations have; beyond it torch runs the function without compiling it."""

_PLAN_FIELDS = ("strategy", "world_size", "micro_batch", "precision")
"""Fields of the plan that decide the order in which numbers are added."""


def use_deterministic_kernels() -> None:
    """Restrict torch to deterministic kernels in this process; it raises RuntimeError where it has none.

    For `scaled_dot_product_attention` this excludes cuDNN, and makes the backward passes of flash and
    memory-efficient attention deterministic (aten/src/ATen/native/transformers/cuda), also with a learned
    bias: its gradient is written once for each sample, and summed afterwards. `warn_only` would not do that.
    """
    import torch._dynamo.config as dynamo
    import torch._inductor.config as inductor

    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    # Torch would fill all memory that it hands out, with a kernel for each allocation. That only helps a
    # program that reads what it has not written, and a test shows that this one does not (test_session.py).
    torch.utils.deterministic.fill_uninitialized_memory = False
    inductor.deterministic = True  # no kernel is chosen by timing
    # A kernel that is compiled after a second shape would serve any shape: which kernel a shape gets would
    # depend on the shapes before it, and a resumed run starts with different ones.
    dynamo.automatic_dynamic_shapes = False
    dynamo.recompile_limit = max(dynamo.recompile_limit, _MAX_SHAPES)


def device_name(device: torch.device) -> str:
    """Return the name of a GPU, or `cpu`."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def describe_guarantee(device: torch.device) -> str:
    """Return the log line that says what the option guarantees."""
    kind = "GPU" if device.type == "cuda" else "CPU"
    return (
        "deterministic: a resumed run repeats an uninterrupted one bit for bit, on the same number of ranks, "
        f"the same kind of {kind} and the same torch"
    )


def changes_since(saved_by: Mapping[str, Any], plan: Plan, device: str) -> list[str]:
    """List the changes since a checkpoint was saved that alter the last bits of the training.

    `saved_by` is the checkpoint's record of its run; an older checkpoint records less, and counts as changed.
    """
    before, now = _compared_values(saved_by), _compared_values(describe_run(plan, device))
    return [f"{name} was {before[name]}, and is {now[name]}" for name in now if before[name] != now[name]]


def describe_run(plan: Plan, device: str) -> dict[str, Any]:
    """Return a checkpoint's record of its run: everything that the last bits depend on."""
    return {"torch": str(torch.__version__), "device": device, "plan": asdict(plan)}


def _compared_values(record: Mapping[str, Any]) -> dict[str, str]:
    plan = record.get("plan")
    planned = plan if isinstance(plan, Mapping) else {}
    named = {"torch": record.get("torch"), "the device": record.get("device")}
    return {
        name: str(value)
        for name, value in {**named, **{key: planned.get(key) for key in _PLAN_FIELDS}}.items()
    }
