"""Fit of a job on GPUs, and the measured speed-up of several ranks, in text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vastrun.contract.workload import Workload
from vastrun.launcher.decisions.speedup import Bottleneck, Speedup, SpeedupRow
from vastrun.launcher.decisions.workload import Fit, GpuFit, needed_gb
from vastrun.launcher.ui.render.amounts import duration
from vastrun.launcher.ui.render.table import facts, table

_HEADER = ("GPU", "GB", "STRATEGY", "NEEDS GB", "AT ONCE", "STEP", "ALL STEPS", "OF PEAK")
_SPEEDUP_HEADER = (
    "RANKS",
    "SAMPLES/S",
    "STEP",
    "SPEED-UP",
    "EFFICIENCY",
    "DATA",
    "COLLECTIVES",
    "FIXED",
    "LIMIT",
)
_LIMITS: Mapping[Bottleneck, str] = {
    "none": "none",
    "data": "data: raise train.loader.workers or prefetch, or keep data in memory",
    "collectives": "waiting for other ranks: try a larger batch, or fewer ranks",
    "unknown": "unknown: one rank alone could not train its share of the batch",
    "fixed": "work that does not shrink with the share: try a larger batch, or fewer ranks",
}
_NOTE = """\
The batch is the same for each number of ranks. EFFICIENCY: speed-up per rank.
Shares of a step: DATA, waiting for data; COLLECTIVES, more than one rank alone
takes for its share of the batch; FIXED, work that does not shrink with the share."""


def fit_text(fit: Fit) -> str:
    """Write the needs of a step on a rank, and a line for each kind of GPU."""
    lines = [table(_HEADER, map(_cells, fit.gpus), right=(1, 3, 4, 5, 6, 7))]
    return "\n\n".join([facts(_facts(fit)), *lines, _note(fit)])


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
        _step_time(gpu.step_s),
        duration(gpu.train_s),
        share,
    )


def _step_time(seconds: float) -> str:
    return f"{seconds * 1000:.3g}ms" if seconds < 1 else duration(seconds)


def _note(fit: Fit) -> str:
    return (
        "NEEDS GB: with a rank's whole share of the batch at once; if there is no room,\n"
        "with one window.\n"
        "STEP, ALL STEPS, OF PEAK: estimated by roofline, not measured, from the FLOPs\n"
        f"and memory traffic of a step at {fit.efficiency:.0%} of the GPU's peak. Communication between\n"
        "ranks and data loading are not included."
    )


def speedup_text(speedup: Speedup) -> str:
    """Write a line for each number of ranks, and what limits the largest one."""
    last = speedup.rows[-1]
    head = facts(
        [
            ("measured on", speedup.gpu or "CPU"),
            ("batch", f"{speedup.batch} windows"),
            ("limit", f"{_LIMITS[last.limit]}\n{last.ranks} ranks: efficiency {last.efficiency:.0%}"),
        ]
    )
    return "\n\n".join(
        [head, table(_SPEEDUP_HEADER, map(_speedup_cells, speedup.rows), right=range(8)), _NOTE]
    )


def _speedup_cells(row: SpeedupRow) -> tuple[str, ...]:
    return (
        str(row.ranks),
        f"{row.samples_per_s:,.4g}",
        f"{row.step_s * 1000:.3g}ms" if row.step_s < 1 else f"{row.step_s:.3g}s",
        f"{row.speedup:.2f}",
        f"{row.efficiency:.0%}",
        f"{row.data:.0%}",
        *("-" if share is None else f"{share:.0%}" for share in (row.collectives, row.fixed)),
        row.limit,
    )
