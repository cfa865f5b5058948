"""Slow training: sentences on GPUs that wait, and on a machine far below others of its kind. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vastrun.contract.outcome import IdleGpus
from vastrun.launcher.decisions import policy

if TYPE_CHECKING:  # it knows jobs, which `status` does not read
    from vastrun.launcher.decisions.history import Speed

IDLE_GPUS, SLOW_MACHINE = "GPUs are idle: ", "trains at "
"""Starts of the sentences, by which they are found among the events of a run."""


def idle_gpus_text(idle: IdleGpus) -> str:
    """Describe a period of low load: load, duration, and what the ranks waited for."""
    busy = f"{idle.load:.0%} busy over {idle.seconds / 60:.0f} min, at step {idle.step}"
    return f"{IDLE_GPUS}{busy}; {waits_text(idle)}"


def waits_text(idle: IdleGpus) -> str:
    """Describe what the ranks waited for, with what to try."""
    cores = f"the run uses {idle.cores:.0%} of the CPU cores"
    if idle.waits_for == "data":
        full = idle.cores >= 0.9
        remedy = "more cores, or less work per sample" if full else "more loader workers or prefetching"
        return f"the ranks wait for data {idle.data:.0%} of the time ({cores}; try {remedy})"
    if idle.waits_for == "disk":
        return (
            f"processes wait for the disk {idle.disk:.0%} of the time (try a faster disk, or data in memory)"
        )
    if idle.waits_for == "cpu":
        return (
            f"the CPU limits them: the main thread of a rank uses {idle.main_thread:.0%} of a core, {cores} "
            "(try larger micro-batches, compilation, or fewer calls from Python)"
        )
    if idle.waits_for == "collectives":
        return (
            "neither data, disk nor CPU limit them: the ranks wait for each other in collectives "
            "(try a larger batch per rank, or fewer GPUs)"
        )
    return "neither data, disk nor CPU limit them (a profile shows the time of each operation)"


def slow_machine_text(kind: str, steps_per_s: float, known: Speed | None) -> str:
    """Compare the speed of a machine with its kind's on other hosts; empty: it is not slow.

    `known`: None where nothing was measured on that kind.
    """
    if known is None or known.runs < policy.SLOW_RUNS or steps_per_s >= known.steps_per_s * policy.SLOW_SHARE:
        return ""
    share, speed = steps_per_s / known.steps_per_s, f"{known.steps_per_s:.3g} steps/s, {known.runs} runs"
    return f"{SLOW_MACHINE}{share:.2f} of the speed of earlier runs on {kind} ({speed})"
