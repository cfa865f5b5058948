"""Memory: what fits is found, what does not is survived, and what is estimated is true."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.estimate import trained
from benchmarks.figures import Limit, max_limit, min_limit
from tests.gpu import trainings
from tests.gpu.check import GIB, Figure, Place, Seen, expect
from tests.gpu.ranks import apart, together
from vastrun.contract.layout import PROFILES

_TASK = "tests.onstart.supervision.faulty:make"
_PLACES = ("forward", "backward", "optimizer", "eval")
_SMALL: trainings.Settings = {"batch": 16}


def check_restarts(place: Place, folder: Path) -> Seen:
    """Ask for more than there is, in each place of a training: each time it starts again with half."""
    faults = [
        {"what": "too much memory", "where": where, "rank": 0, "step": 3, "starts": number}
        for number, where in enumerate(_PLACES, start=1)
    ]
    settings: trainings.Settings = {"batch": 32, "data": _data(), "steps": 12}
    env = {"FAULTS": json.dumps(faults)}
    with trainings.supervised(trainings.box_of(folder / "box", place, settings, env=env)) as run:
        outcome = run.outcome()
        trainings.expect_reason(run, outcome, "finished")
    starts = [(start.reason, start.micro_batch) for start in outcome.starts]
    expected = [("oom", 32), ("oom", 16), ("oom", 8), ("oom", 4), ("finished", 2)]
    expect(starts == expected, f"the starts were {starts}, not {expected}")
    return Seen(text=", ".join(_PLACES))


def check_out_of_memory(place: Place, folder: Path) -> Seen:
    """Train a step that needs several times the memory of the GPU: it starts again with smaller parts."""
    if not place.gpus:
        return Seen(text="needs a GPU's own limit of memory")
    job = {**_FAR_TOO_LARGE, "steps": 4, "checkpoint_every": 4, "profile": {"step": None, "memory": True}}
    with trainings.supervised(trainings.box_of(folder / "restart", place, job)) as run:
        outcome = run.outcome()
        trainings.expect_reason(run, outcome, "finished")
    starts = [(start.reason, start.micro_batch) for start in outcome.starts]
    expect(len(starts) > 1 and all(reason == "oom" for reason, _ in starts[:-1]), f"the starts were {starts}")
    snapshot = run.box / f"{PROFILES}/memory-rank-0.pickle"
    expect(snapshot.exists(), f"no snapshot of the memory was written: {run.log()[-2000:]}")
    sizes = " to ".join(str(size) for _, size in starts)
    return Seen(text=f"restart: {sizes} windows at once; snapshot of {snapshot.stat().st_size >> 20} MiB")


_FAR_TOO_LARGE: trainings.Settings = {
    "batch": 4096,
    "unroll": 2,
    "data": {"betas": [1.0], "train": 512, "test": 2, "points": 2048, "frames": 11},
    "model": {"name": "latent", "dim": 256, "depth": 4, "heads": 4, "patch": 4},
}
"""About 240 GiB of activations."""


def check_estimated(place: Place, folder: Path) -> Seen:
    """Compare the peak that `vastrun plan` estimates with what the allocator had."""
    figures = []
    jobs = _FORETOLD if place.gpus else {"latent fp32": _SMALL}
    for name, settings in jobs.items():
        settings = {**settings, "strategy": "single"}
        total, other = apart(_estimate, settings, place.gpus > 0)
        if place.gpus:
            box = trainings.box_of(folder / name, place, settings)
            peak = together(place, _allocated, 1, box, settings)[0]
            name = f"{name}, {peak / GIB:.2f} GiB"
        else:  # there trajectories are no tensors of torch's own
            total, peak = total - other, trained(trainings.config_of(settings))[0]
        figures += [_ratio(name, total / peak, limit) for limit in (max_limit(1.1), min_limit(0.9))]
    return Seen(figures=figures)


_WIDE: trainings.Settings = {
    "batch": 96,
    "unroll": 2,
    "data": {"betas": [1.0], "train": 64, "test": 2, "points": 1024, "frames": 21},
    "model": {"name": "latent", "dim": 512, "depth": 6, "heads": 8, "patch": 4},
}
_WIDE_FNO: trainings.Settings = {**_WIDE, "batch": 384, "model": {"name": "fno", "dim": 128, "depth": 4}}
_OWN_MODEL: trainings.Settings = {
    **_WIDE,
    "batch": 256,
    "precision": "bf16",
    "model": {"name": trainings.OWN_MODEL, "options": {"width": 512, "depth": 6, "heads": 8}},
}
_FORETOLD: Mapping[str, trainings.Settings] = {
    "latent fp32": _WIDE,
    "latent bf16": {**_WIDE, "precision": "bf16"},
    "latent bf16 selective": {
        **_WIDE,
        "batch": 256,
        "precision": "bf16",
        "activation_checkpointing": "selective",
    },
    "latent bf16 recomputed": {
        **_WIDE,
        "batch": 512,
        "precision": "bf16",
        "activation_checkpointing": "full",
    },
    "fno fp32": _WIDE_FNO,
    "fno bf16": {**_WIDE_FNO, "precision": "bf16"},
    "own transformer bf16": _OWN_MODEL,
    "own transformer bf16 recomputed": {**_OWN_MODEL, "activation_checkpointing": "full"},
}
"""Jobs of 4 GiB and more: of smaller ones what the libraries keep is a large share."""


def _ratio(name: str, ratio: float, limit: Limit) -> Figure:
    return Figure(name=f"{name}, estimated", value=ratio, unit="of the true peak", limit=limit)


def _estimate(settings: trainings.Settings, gpus: bool) -> tuple[int, int]:
    """Return bytes of the peak, and those of trajectories among them."""
    from vastrun.trainer.workload.estimator import estimate_workload, without_gpu_options
    from vastrun.trainer.workload.fakes import make_fake_ranks

    config = without_gpu_options(trainings.config_of(settings))
    peak = estimate_workload(make_fake_ranks(1), config, "single", config.batch, gpus=gpus).peak
    return peak.total, peak.other


def _allocated(ranks: Any, box: Path, settings: trainings.Settings) -> int:
    """Return the peak of the allocator in bytes; where it stands between the steps goes to the log."""
    import torch

    device = ranks.device
    session = trainings.begin(ranks, box, settings)
    print(f"after the set-up: {torch.cuda.memory_allocated(device):,} bytes", flush=True)
    for step in range(3):
        session, _ = trainings.learn(session, step, step + 1)
        now, peak = torch.cuda.memory_allocated(device), torch.cuda.max_memory_allocated(device)
        print(f"after step {step + 1}: {now:,} bytes, at most {peak:,}", flush=True)
    print(f"reserved: {torch.cuda.max_memory_reserved(device):,} bytes of {settings}", flush=True)
    session.loader.close()
    return int(torch.cuda.max_memory_allocated(device))


def _data() -> dict[str, Any]:
    return {"betas": [1.0], "train": 32, "test": 8, "points": 32, "frames": 9, "task": _TASK}
