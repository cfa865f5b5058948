"""Fit of a job on GPUs, in text."""

from __future__ import annotations

from collections.abc import Iterator

from vastrun.contract.workload import Workload
from vastrun.launcher.decisions.workload import Fit, GpuFit, needed_gb
from vastrun.launcher.ui.render.amounts import duration, facts, table

_HEADER = ("GPU", "GB", "STRATEGY", "NEEDS GB", "AT ONCE", "STEP", "ALL STEPS", "OF PEAK")


def fit_text(fit: Fit) -> str:
    """Write the needs of a step on a rank, and a line for each kind of GPU."""
    note = (
        "NEEDS GB: with a rank's whole share of the batch at once; if there is no room,\n"
        "with one window.\n"
        "STEP, ALL STEPS, OF PEAK: estimated by roofline, not measured, from the FLOPs\n"
        f"and memory traffic of a step at {fit.efficiency:.0%} of the GPU's peak. Communication between\n"
        "ranks and data loading are not included."
    )
    lines = table(_HEADER, map(_cells, fit.gpus), right=(1, 3, 4, 5, 6, 7))
    return "\n\n".join([facts(_facts(fit)), lines, note])


def windows_text(workload: Workload) -> str:
    """Write the number of windows that are computed at once."""
    return "1 window at once" if workload.micro_batch == 1 else f"{workload.micro_batch} windows at once"


def _facts(fit: Fit) -> Iterator[tuple[str, str]]:
    yield "ranks", str(fit.world_size)
    yield "parameters", f"{fit.workloads.parameters:,}"
    for strategy in dict.fromkeys(each.strategy for each in fit.workloads.workloads):
        yield strategy, "\n".join(_step(each, fit.world_size) for each in fit.workloads.of(strategy))


def _step(workload: Workload, world_size: int) -> str:
    return (
        f"{windows_text(workload)}: {needed_gb(workload, world_size):.3g} GB of a GPU; "
        f"{workload.flops / 1e12:.3g} TFLOP a step and rank"
    )


def _cells(gpu: GpuFit) -> tuple[str, ...]:
    start = (gpu.gpu, f"{gpu.memory_gb:g}", gpu.strategy)
    if gpu.windows is None or gpu.step_s is None or gpu.train_s is None or gpu.mfu is None:
        return (*start, f"{gpu.min_gb:.3g}", "no room", "-", "-", "-")
    share = f"{gpu.mfu:.0%}" if gpu.mfu >= 0.01 else "under 1%"
    return (
        *start,
        f"{gpu.needed_gb:.3g}",
        str(gpu.windows),
        f"{gpu.step_s * 1000:.3g}ms" if gpu.step_s < 1 else duration(gpu.step_s),
        duration(gpu.train_s),
        share,
    )
