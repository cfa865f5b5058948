"""Figures: how fast GPUs train, beside what they could do and beside what one writes by hand."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import box as boxes
from benchmarks.figures import Pair, at_least, at_most, in_turns
from tests.gpu.check import Figure, Place, Seen, expect
from tests.gpu.ranks import together
from tests.gpu.trainings import Settings, begin, box_of, learn
from trainer.contract.config import DataConfig, ModelConfig, TrainConfig

_MODEL: Settings = {"dim": 512, "depth": 8, "heads": 8}
_DATA: Settings = {"betas": [1.0], "train": 64, "test": 1, "points": 256, "frames": 21}
_REFERENCE: Mapping[str, Settings] = {
    "latent fp32": {"model": _MODEL},
    "latent tf32": {"model": _MODEL, "precision": "tf32"},
    "latent bf16": {"model": _MODEL, "precision": "bf16"},
    "latent bf16 compiled": {"model": _MODEL, "precision": "bf16", "compile": "blocks"},
    "fno fp32": {"model": {"name": "fno", "dim": 256, "depth": 4, "modes": 32}},
}
_ROUNDS = 2
_ANY_GPU = "NVIDIA H100 80GB HBM3"
"""Stands for one where this is tried on a CPU."""


def measure_mfu(place: Place, folder: Path) -> Seen:
    """Train each reference model and count: the share of the GPU's peak that its operations take."""
    jobs = {name: _sized(settings, place) for name, settings in _REFERENCE.items()}
    if not place.gpus:
        jobs.pop("latent bf16 compiled")
    box = box_of(folder / "box", place, next(iter(jobs.values())))
    rates = together(place, _rates, 1, box, jobs, place.pick(30, 2))[0]
    figures = []
    for name, (samples_per_s, share) in rates.items():
        figures.append(Figure(name=name, value=samples_per_s, unit="samples/s"))
        if share is not None:
            figures.append(Figure(name=f"{name}, MFU", value=share, unit="of the peak", limit=at_most(1.0)))
    return Seen(figures=figures)


def _sized(settings: Settings, place: Place) -> Settings:
    """On a CPU: small ones of the same kinds."""
    model = {**settings["model"], **({} if place.gpus else {"dim": 32, "depth": 1})}
    return {**settings, "batch": place.pick(128, 4), "unroll": 3, "data": _DATA, "model": model}


def _rates(
    ranks: Any, box: Path, jobs: Mapping[str, Settings], steps: int
) -> dict[str, tuple[float, float | None]]:
    """Return samples a second, and the share of the peak where that is known."""
    import torch

    from trainer.telemetry.figures import most_samples_per_s

    on_gpu, found = ranks.device.type == "cuda", {}
    gpu = torch.cuda.get_device_name(ranks.device) if on_gpu else _ANY_GPU
    for name, settings in jobs.items():
        session, _ = learn(begin(ranks, box, settings), 0, 3)  # each step of it is waited for
        began = time.perf_counter()
        session, _ = _stepped(session, 3, 3 + steps)
        seconds = time.perf_counter() - began
        samples_per_s = steps * session.task_schedule.samples / seconds
        most = most_samples_per_s(session, gpu)
        found[name] = samples_per_s, samples_per_s / most if most else None
        session.loader.close()
    return found


def _stepped(session: Any, first: int, last: int) -> tuple[Any, float]:
    """Train without waiting for the device before the last step."""
    from tests.gpu.trainings import heart_of
    from trainer.engine.step import take_step

    heart, told = heart_of(session), None
    for step in range(first, last):
        session, told = take_step(session, step, heart)
    assert told is not None
    return session, session.ranks.mean_of(*told)[0]


def measure_loop(strategy: str, place: Place, folder: Path) -> Seen:
    """Train under the supervisor, with every safeguard, and with a loop by hand, in turns."""
    ranks = 1 if strategy == "single" else place.ranks(2)
    numbers = iter(range(100))

    def box() -> Path:
        config = _of_loops(strategy, ranks, place)
        return boxes.prepare(folder / f"box-{next(numbers)}", config, ranks=ranks, gpus=place.gpus_of(ranks))

    def measured(train: Callable[[Path], list[dict[str, float]]]) -> float:
        return _steps_per_s(train(box()), place.pick(50, 2))

    pair = in_turns(
        partial(measured, boxes.train_with_vastrun),
        partial(measured, boxes.train_by_hand),
        place.pick(_ROUNDS, 1),
    )
    name = f"{strategy} x{ranks}"
    limit = at_least(0.99) if place.gpus else None
    return Seen(
        figures=[
            Figure(name=name, value=statistics.median(pair.ours), unit="steps/s"),
            Figure(name=name, value=pair.ratio, unit="of a bare loop's", limit=limit),
        ]
    )


def _of_loops(strategy: str, ranks: int, place: Place) -> TrainConfig:
    config = boxes.config(place.pick(200, 6))
    config = replace(config, strategy=strategy, batch=place.pick(64, 4) * ranks, log_every=place.pick(50, 2))
    config = replace(config, checkpoint_every=place.pick(100, 4), probe="off", plots=False)
    if place.gpus:
        config = replace(config, model=ModelConfig(dim=512, depth=8, heads=8), data=(DataConfig(points=256),))
    return config


def _steps_per_s(records: list[dict[str, float]], after: int) -> float:
    told = [record for record in records if record.get("step", 0) >= after and "at" in record]
    expect(len(told) > 1, f"too few lines to measure: {records}")
    return (told[-1]["step"] - told[0]["step"]) / (told[-1]["at"] - told[0]["at"])


def measure_loader(place: Place, folder: Path) -> Seen:
    """Bring batches to the GPU by the loader's thread, beside plain copies of as many bytes."""
    settings: Settings = {
        "batch": place.pick(64, 8),
        "unroll": 3,
        "steps": 10_000,
        "data": {**_DATA, "points": place.pick(8192, 256), "frames": 9, "keep": "host"},
    }
    box = box_of(folder / "box", place, settings)
    pair = together(place, _delivery, 1, box, settings, place.pick(9, 2))[0]
    return Seen(
        figures=[
            Figure(name="loader, from memory", value=statistics.median(pair.ours), unit="GB/s"),
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
        limit = at_most(0.1) if place.gpus else None
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
