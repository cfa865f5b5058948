"""Figures: how fast GPUs train, beside what they could do and beside what one writes by hand."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import box as boxes
from benchmarks.figures import Pair, in_turns, max_limit, min_limit
from tests.gpu.check import GIB, Figure, Place, Seen, expect
from tests.gpu.ranks import together
from tests.gpu.trainings import Settings, begin, box_of, learn
from vastrun.trainer.job.config import ModelConfig, TrainConfig
from vastrun.trainer.job.data_config import DataConfig

if TYPE_CHECKING:
    from benchmarks.time_slices import Training

_BRIEF: Settings = {"betas": [1.0], "train": 64, "test": 1, "frames": 21}
LARGE: Settings = {
    "model": {"name": "latent", "dim": 1024, "depth": 12, "heads": 16, "patch": 4, "mlp_ratio": 4},
    "data": {**_BRIEF, "points": 1024},
    "batch": 256,
    "unroll": 1,
    "precision": "bf16",
}
"""62 TFLOP a step: large enough for its products to fill an H100."""
_LATENT: Settings = {"name": "latent", "dim": 512, "depth": 8, "heads": 8, "patch": 4}
_MODES = 32
_MIN_S = 2.0
"""A speed is measured for so long at least."""
_ANY_GPU = "NVIDIA H100 80GB HBM3"
"""Stands for one where this is tried on a CPU."""


def measure_mfu(place: Place, folder: Path) -> Seen:
    """Train the large model, eager and compiled: the share of the GPU's peak that its operations take."""
    jobs: dict[str, Settings] = {"eager": LARGE, "compiled": {**LARGE, "compile": "blocks"}}
    if not place.gpus:
        jobs = {"eager": _small(LARGE)}
    figures = []
    for name, speed in _speeds(place, folder, jobs).items():
        figures.append(Figure(name=name, value=speed["samples_per_s"], unit="samples/s"))
        if share := speed["mfu"]:
            figures.append(Figure(name=f"{name}, MFU", value=share, unit="of the peak", limit=max_limit(1.0)))
        figures.append(Figure(name=f"{name}, memory", value=speed["memory"] / GIB, unit="GiB"))
    return Seen(figures=figures)


def measure_models(place: Place, folder: Path) -> Seen:
    """Train the latent operator and a Fourier neural operator with as many parameters."""
    data = {**_BRIEF, "points": 256}
    common: Settings = {"data": data, "batch": 128, "unroll": 3}
    latent = {**common, "model": _LATENT}
    fno = {**common, "model": {"name": "fno", "depth": 4, "modes": _MODES, "dim": _width(_LATENT)}}
    jobs = {
        f"{name} {precision}": {**settings, "precision": precision}
        for precision in ("fp32", "tf32", "bf16")
        for name, settings in (("latent", latent), ("fno", fno))
    }
    if not place.gpus:
        jobs = {name: _small(jobs[name]) for name in ("latent fp32", "fno fp32")}
    speeds = {name: speed["samples_per_s"] for name, speed in _speeds(place, folder, jobs).items()}
    figures = [Figure(name=name, value=value, unit="samples/s") for name, value in speeds.items()]
    for precision in sorted({name.split()[1] for name in speeds}):
        ratio = speeds[f"latent {precision}"] / speeds[f"fno {precision}"]
        figures.append(Figure(name=f"latent {precision}", value=ratio, unit="of the FNO's samples/s"))
    return Seen(text=f"fno: {fno['model']['dim']} channels, {_MODES} frequencies", figures=figures)


def measure_compiled(model: str, place: Place, folder: Path) -> Seen:
    """Train one of the two compiled, with CUDA graphs: the host no longer starts each operation."""
    models = {"latent": _LATENT, "fno": {"name": "fno", "depth": 4, "modes": _MODES, "dim": _width(_LATENT)}}
    job: Settings = {
        "data": {**_BRIEF, "points": 256},
        "batch": 128,
        "unroll": 3,
        "precision": "bf16",
        "model": models[model],
        "compile": "blocks",
        "cuda_graphs": place.gpus > 0,
    }
    speed = _speeds(place, folder, {model: job if place.gpus else _small(job)})[model]
    figures = [Figure(name=f"{model} bf16", value=speed["samples_per_s"], unit="samples/s")]
    if share := speed["mfu"]:
        figures.append(Figure(name=f"{model} bf16, MFU", value=share, unit="of the peak"))
    return Seen(figures=figures)


def _width(model: Settings) -> int:
    """Return the channels of a Fourier neural operator with as many parameters."""
    import torch

    from vastrun.trainer import models
    from vastrun.trainer.models.operator import Domain
    from vastrun.trainer.models.weights import count_parameters

    def size(config: ModelConfig) -> int:
        with torch.device("meta"):
            return count_parameters(models.make(config, [Domain(grid=(256,), conditions=2)]))

    aim, fno = size(ModelConfig(**model)), ModelConfig(name="fno", modes=_MODES)
    # It grows with the channels.
    above = bisect_left(range(513), aim, 9, 512, key=lambda dim: size(replace(fno, dim=dim)))
    return min((above - 1, above), key=lambda dim: abs(size(replace(fno, dim=dim)) - aim))


def _small(settings: Settings) -> Settings:
    """Return a small job of the same kind, for a CPU."""
    model = {**settings["model"], "dim": 32, "depth": 1, "modes": 8}
    return {**settings, "model": model, "batch": 4, "data": {**settings["data"], "points": 64}}


def _speeds(place: Place, folder: Path, jobs: Mapping[str, Settings]) -> dict[str, dict[str, Any]]:
    box = box_of(folder / "box", place, next(iter(jobs.values())))
    found: dict[str, dict[str, Any]] = together(place, _measured, 1, box, jobs)[0]
    return found


def _measured(ranks: Any, box: Path, jobs: Mapping[str, Settings]) -> dict[str, dict[str, Any]]:
    return {name: measured(ranks, box, settings) for name, settings in jobs.items()}


def measured(ranks: Any, box: Path, settings: Settings) -> dict[str, Any]:
    """Train for some seconds. Return steps/s, samples/s, the share of the peak if known, and bytes used."""
    import gc

    import torch

    from vastrun.trainer.telemetry.figures import max_samples_per_s

    on_gpu = ranks.device.type == "cuda"
    gpu = torch.cuda.get_device_name(ranks.device) if on_gpu else _ANY_GPU
    torch._dynamo.reset()
    torch._inductor.config.compile_threads = 1  # no pool of workers that each import torch
    session, _ = learn(begin(ranks, box, {**settings, "steps": 100_000}), 0, 3)  # each of them is waited for
    session, step_s = _stepped(session, 3, 5)
    steps = max(5, math.ceil(_MIN_S / step_s)) if on_gpu else 2
    session, seconds = _stepped(session, 5, 5 + steps)
    per_s = steps * session.task_schedule.samples / seconds
    most = max_samples_per_s(session, gpu)
    memory = torch.cuda.max_memory_allocated(ranks.device) if on_gpu else 0
    session.loader.close()
    del session
    gc.collect()
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(ranks.device)
    return {
        "steps_per_s": steps / seconds,
        "samples_per_s": per_s,
        "mfu": per_s / most if most else None,
        "memory": memory,
    }


def _stepped(session: Any, first: int, last: int) -> tuple[Any, float]:
    """Train without waiting for the device before the last step. Return seconds too."""
    from tests.gpu.trainings import heart_of
    from vastrun.trainer.engine.step import train_step

    heart, told = heart_of(session), None
    began = time.perf_counter()
    for step in range(first, last):
        session, told = train_step(session, step, heart)
    assert told is not None
    session.ranks.mean_of(*told)
    return session, time.perf_counter() - began


def measure_loop(strategy: str, place: Place, folder: Path) -> Seen:
    """Train under the supervisor, with every safeguard, and with a loop by hand, in turns of a second."""
    from benchmarks.time_slices import by_hand, run_in_slices, with_vastrun

    ranks, after = 1 if strategy == "single" else place.ranks(2), place.pick(50, 2)
    config = _of_loops(strategy, ranks, place)
    starts = [
        partial(way, boxes.prepare(folder / name, config, ranks=ranks, gpus=place.gpus_of(ranks)))
        for name, way in (("ours", with_vastrun), ("by-hand", by_hand))
    ]
    ours, theirs = (_steps_per_s(training, after) for training in run_in_slices(starts))
    name, limit = f"{strategy} x{ranks}", min_limit(0.99) if place.gpus else None
    return Seen(
        figures=[
            Figure(name=name, value=ours, unit="steps/s"),
            Figure(name="by hand", value=theirs, unit="steps/s"),
            Figure(name=name, value=ours / theirs, unit="of a bare loop's", limit=limit),
        ]
    )


def _of_loops(strategy: str, ranks: int, place: Place) -> TrainConfig:
    config = boxes.config(place.pick(400, 6))
    config = replace(config, strategy=strategy, batch=place.pick(64, 4) * ranks, log_every=place.pick(50, 2))
    config = replace(config, checkpoint_every=place.pick(200, 4), plots=False)
    if place.gpus:
        config = replace(config, model=ModelConfig(**_LATENT), data=(DataConfig(points=256),))
    return config


def _steps_per_s(training: Training, after: int) -> float:
    measured = [line for line in training.records() if line.get("step", 0) >= after and "at" in line]
    expect(len(measured) > 1, f"too few lines to measure: {measured}")
    first, last = measured[0], measured[-1]
    return (last["step"] - first["step"]) / training.ran_s(first["at"], last["at"])


def measure_loader(place: Place, folder: Path) -> Seen:
    """Bring batches to the GPU by the loader's thread, beside plain copies of as many bytes."""
    settings: Settings = {
        "batch": place.pick(64, 8),
        "unroll": 3,
        "steps": 10_000,
        "data": {**_BRIEF, "points": place.pick(8192, 256), "frames": 9, "keep": "host"},
    }
    box = box_of(folder / "box", place, settings)
    pair = together(place, _delivery, 1, box, settings, place.pick(9, 2))[0]
    return Seen(
        figures=[
            Figure(name="loader, from memory", value=statistics.median(pair.candidate), unit="GB/s"),
            Figure(name="loader, from memory", value=pair.ratio, unit="of a pinned copy in one piece"),
        ]
    )


def _delivery(ranks: Any, box: Path, settings: Settings, rounds: int) -> Pair:
    """Return GB/s of the loader and of copies, in turns."""
    import torch

    session = begin(ranks, box, settings)
    steps = iter(range(session.config.steps))
    size = session.loader.read(next(steps), 0).fields.nbytes
    source = torch.empty(size, dtype=torch.uint8, pin_memory=ranks.device.type == "cuda")

    def gb_per_s(take: Callable[[], object]) -> float:
        began = time.perf_counter()
        for _ in range(10):
            take()
        ranks.mean_of(torch.zeros((), device=ranks.device))
        return 10 * size / (time.perf_counter() - began) / 1e9

    pair = in_turns(
        lambda: gb_per_s(lambda: session.loader.read(next(steps), 0)),
        lambda: gb_per_s(lambda: source.to(ranks.device, non_blocking=True, copy=True)),
        rounds,
    )
    session.loader.close()
    return pair


def measure_stall(place: Place, folder: Path) -> Seen:
    """Save 250 MB beside a training, and durably: how long it stands still."""
    ranks, figures = place.ranks(2), []
    for strategy in ("ddp", "fsdp2"):
        box = folder / strategy
        box.mkdir()
        rounds = _saves(box, strategy, ranks, place, place.pick(4, 2))
        later = [one["stall_s"] for one in rounds[1:]]
        limit = max_limit(0.1) if place.gpus else None
        name = f"{strategy} x{ranks}, stall for 250 MB"
        figures.append(Figure(name=name, value=statistics.median(later), unit="s", limit=limit))
        durable = statistics.median(one["durable_s"] for one in rounds[1:])
        figures.append(Figure(name=f"{strategy} x{ranks}, waited for", value=durable, unit="s"))
    return Seen(figures=figures)


def _saves(box: Path, strategy: str, ranks: int, place: Place, rounds: int) -> list[dict[str, float]]:
    command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    program = ["-m", "benchmarks.saves", strategy, str(place.gpus_of(ranks)), str(rounds)]
    done = subprocess.run(
        [sys.executable, *command, *program],
        env=boxes.environment(box),
        capture_output=True,
        text=True,
        check=False,
    )
    expect(done.returncode == 0, f"the saves failed: {done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
