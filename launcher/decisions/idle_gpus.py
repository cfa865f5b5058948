"""Idle GPUs: a sentence on GPUs that work less than half of the time, and on what they wait for."""

from __future__ import annotations

from vastrun.contract.outcome import IdleGpus

BEGINS = "GPUs are idle: "
"""Start of the sentence, by which it is found among the events of a run."""
_FULL_CORES = 0.9


def idle_gpus_text(idle: IdleGpus) -> str:
    """Describe a period of low load: load, duration, and what the ranks waited for."""
    busy = f"{idle.load:.0%} busy over {idle.seconds / 60:.0f} min, at step {idle.step}"
    return f"{BEGINS}{busy}; {waits_text(idle)}"


def waits_text(idle: IdleGpus) -> str:
    """Describe what the ranks waited for, with what to try."""
    cores = f"the run uses {idle.cores:.0%} of the CPU cores"
    if idle.waits_for == "data":
        full = idle.cores >= _FULL_CORES
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
