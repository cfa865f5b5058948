"""Foretold: what `vastrun.trainer.workload` says of a step, beside what the step does on this computer.

Each strategy with two models, two precisions and the modes of activation checkpointing. The
truth is the profiler's record of every allocation of torch, on rank 0 of a real training; the operations are
counted while it trains. Trajectories are left out: HDF5 reads them, and torch allocates nothing for them.
"""

import multiprocessing
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from vastrun.contract import layout
from vastrun.contract.records import read_as
from vastrun.contract.workload import Workload
from vastrun.trainer.job.config import TrainConfig

RANKS = {"single": 1, "ddp": 2, "fsdp2": 2}
_TRAININGS = {"single": 1, "ddp": 3, "fsdp2": 3}
"""The least of their peaks is the true one: on a busy computer about two FSDP2 trainings in five have a peak
that is up to a sixth higher, by chance."""
_LIMIT = timedelta(minutes=10)
_FURTHEST_OFF = 0.1
_BASE: dict[str, Any] = {
    "batch": 16,
    "steps": 4,
    "data": {"betas": [1.0], "train": 16, "test": 4, "points": 64, "frames": 9},
    "ema": 0.9,
    "wandb": {"mode": "off"},
    "plots": False,
}
_LATENT = {"model": {"dim": 128, "depth": 4, "patch": 4}}
_FNO = {"model": {"name": "fno", "dim": 48, "depth": 4}}
_SPECTRAL = {"model": {"name": "spectral", "dim": 48, "depth": 4}}
VARIANTS: dict[str, dict[str, Any]] = {
    "latent fp32": _LATENT,
    "latent bf16 checkpointing": {**_LATENT, "precision": "bf16", "activation_checkpointing": "full"},
    "latent fp32 selective": {**_LATENT, "activation_checkpointing": "selective"},
    "latent bf16 selective": {**_LATENT, "precision": "bf16", "activation_checkpointing": "selective"},
    "fno fp32 checkpointing": {**_FNO, "activation_checkpointing": "full"},
    "fno fp32 selective": {**_FNO, "activation_checkpointing": "selective"},
    "fno bf16": {**_FNO, "precision": "bf16"},
    "spectral fp32": _SPECTRAL,
    "spectral bf16 checkpointing": {
        **_SPECTRAL,
        "precision": "bf16",
        "activation_checkpointing": "full",
    },
}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One job. Bytes without trajectories."""

    name: str
    estimated_bytes: int
    bytes: int
    estimated_flops: float
    flops: float

    @property
    def off(self) -> float:
        """How far the estimated peak is off, as a share of the true one."""
        return self.estimated_bytes / self.bytes - 1


def jobs() -> Iterator[tuple[str, TrainConfig]]:
    """Yield the jobs, by name."""
    for strategy in RANKS:
        for name, settings in VARIANTS.items():
            yield f"{strategy} {name}", read_as(TrainConfig, {**_BASE, **settings, "strategy": strategy})


def compared(name: str, config: TrainConfig, trainings: int | None = None) -> Comparison:
    """Foretell the job, train it so often, and put both side by side."""
    estimate = _apart(_estimate, config)
    true_bytes, flops = min(trained(config) for _ in range(trainings or _TRAININGS[config.strategy]))
    return Comparison(
        name=name,
        estimated_bytes=estimate.peak.total - estimate.peak.other,
        bytes=true_bytes,
        estimated_flops=estimate.flops,
        flops=flops,
    )


def trained(config: TrainConfig) -> tuple[int, float]:
    """Train a few steps; return the peak of rank 0's tensors in bytes, and the operations of a step."""
    from vastrun.trainer import data

    with tempfile.TemporaryDirectory() as folder:
        for task in config.data:
            data.generate(task, Path(folder) / layout.DATA)
        context = multiprocessing.get_context("spawn")
        others = [
            context.Process(target=_rank, args=(rank, folder, config))
            for rank in range(1, RANKS[config.strategy])
        ]
        for process in others:
            process.start()
        answer: tuple[int, float] = _apart(_rank, 0, folder, config)
        for process in others:
            process.join()
        return answer


def trained_within(config: TrainConfig, limit_bytes: int) -> bool:
    """Train two steps alone where torch may hold so many bytes; return False when it is out of memory."""
    from vastrun.trainer import data

    with tempfile.TemporaryDirectory() as folder:
        for task in config.data:
            data.generate(task, Path(folder) / layout.DATA)
        held: bool = _apart(_rank_within, folder, config, limit_bytes)
        return held


def _rank_within(folder: str, config: TrainConfig, limit_bytes: int) -> bool:
    import torch

    from vastrun.trainer.engine.session_builder import set_up
    from vastrun.trainer.engine.step import train_step
    from vastrun.trainer.workload.tensors import TensorCounter

    class Limit(TensorCounter):
        """A memory of that size, full of tensors."""

        def _record(self, *arguments: Any) -> None:
            super()._record(*arguments)
            if self._total > limit_bytes:
                raise torch.OutOfMemoryError("injected")

    ranks, job, heart = _joined(0, folder, config)
    try:
        with Limit():
            session = set_up(ranks, job, config)
            for step in range(2):
                session, _ = train_step(session, step, heart)
    except torch.OutOfMemoryError:
        return False
    return True


def _apart(function: Any, *arguments: Any) -> Any:
    """Call it in a process of its own: real and fake tensors, and groups, must not meet."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def _estimate(config: TrainConfig) -> Workload:
    from vastrun.trainer.workload.estimator import estimate_workload, without_gpu_options
    from vastrun.trainer.workload.fakes import make_fake_ranks

    size = RANKS[config.strategy]
    return estimate_workload(
        make_fake_ranks(size), without_gpu_options(config), config.strategy, config.batch // size
    )


def _rank(rank: int, folder: str, config: TrainConfig) -> tuple[int, float]:
    import torch.distributed as torch_dist
    from torch.profiler import ProfilerActivity, profile, record_function

    from vastrun.trainer.engine.session_builder import set_up
    from vastrun.trainer.engine.step import train_step
    from vastrun.trainer.telemetry.figures import counting_flops

    ranks, job, heart = _joined(rank, folder, config)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        session = set_up(ranks, job, config)
        with record_function(_STEPS_BEGIN):
            for step in range(2):
                session, _ = train_step(session, step, heart)
    with counting_flops() as counter:
        train_step(session, 2, heart)
    flops = float(counter.get_total_flops())
    torch_dist.barrier()
    torch_dist.destroy_process_group()
    return _peak_of(recorded), flops


def _joined(rank: int, folder: str, config: TrainConfig) -> tuple[Any, Any, Any]:
    """Join the others of the job; return what a set-up needs of this rank."""
    import torch
    import torch.distributed as torch_dist

    from vastrun.contract.job import Job
    from vastrun.contract.program import ProgramSpec
    from vastrun.trainer.distributed.group import Ranks
    from vastrun.trainer.distributed.rank import Heartbeat, Rank

    world_size, box = RANKS[config.strategy], Path(folder)
    store = torch_dist.FileStore(f"{folder}/store", world_size)
    torch_dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=_LIMIT)
    place = Rank(rank=rank, local_rank=rank, world_size=world_size, box=box)
    ranks = Ranks(rank=place, device=torch.device("cpu"), control=torch_dist.new_group(backend="gloo"))
    heart = Heartbeat(box / f"beat-{rank}")
    job = Job(run_id="", program=ProgramSpec(kind="train"), ranks=1, gpus=0, stall_s=60, start_s=60)
    return ranks, job, heart


_STEPS_BEGIN = "the steps begin"


def _peak_of(recorded: Any) -> int:
    """Return the most bytes at once from the first step on, of all that torch allocated and has not freed."""
    events = sorted(recorded.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    now, peak, has_started = 0, 0, False
    for event in events:
        if event.name() == _STEPS_BEGIN:
            has_started = True
        elif event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now) if has_started else 0
    return peak


def run() -> bool:
    """Print the table; return False when an operation or more than a tenth of a peak is amiss."""
    is_accurate = True
    print(f"{'JOB':40} {'FORETOLD MIB':>13} {'TRUE MIB':>9} {'OFF':>6}  FLOPS")
    for name, config in jobs():
        found = compared(name, config)
        same = "equal" if found.estimated_flops == found.flops else f"{found.estimated_flops} {found.flops}"
        mib = 1 << 20
        print(
            f"{name:40} {found.estimated_bytes / mib:13.1f} {found.bytes / mib:9.1f} "
            f"{found.off:6.1%}  {same}",
            flush=True,
        )
        is_accurate = is_accurate and same == "equal" and abs(found.off) < _FURTHEST_OFF
    return is_accurate
