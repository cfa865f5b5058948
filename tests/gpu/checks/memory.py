"""Memory: what fits is found, what does not is survived, and what is estimated is true."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.estimate import trained
from benchmarks.figures import Limit, max_limit, min_limit
from tests.gpu import trainings
from tests.gpu.check import GIB, Broken, Figure, Place, Seen, expect
from tests.gpu.comparing import beside
from tests.gpu.ranks import apart, together
from vastrun.contract.profiling import memory_path

_TASK = "tests.onstart.supervision.faulty:make"
_PLACES = ("forward", "backward", "optimizer", "eval")
_LARGE: trainings.Settings = {
    "batch": 64,
    "data": {"betas": [1.0], "train": 64, "test": 2, "points": 512, "frames": 5},
    "model": {"dim": 256, "depth": 4, "heads": 4, "patch": 4},
}
_SMALL: trainings.Settings = {"batch": 16}


def check_probe(place: Place, folder: Path) -> Seen:
    """Leave a rank room for half of its windows: the probe finds out, and the training fits."""
    settings = _LARGE if place.gpus else _SMALL
    ranks = place.ranks(2)
    jobs: Mapping[str, tuple[int, trainings.Settings]] = {
        "single": (1, settings),
        f"ddp x{ranks}": (ranks, {**settings, "strategy": "ddp"}),
    }
    figures: list[Figure] = []
    for name, (size, job) in jobs.items():
        box = trainings.box_of(folder / name, place, job, ranks=size)
        found, share, losses, told = together(place, _probed, size, box, job)[0]
        expect(found < share, f"{name}: {found} of {share} windows, where there is room for half")
        expect(found >= share // 8, f"{name}: {found} of {share} windows are too few")
        figures += beside({f"{name}, {found} of {share} windows": losses}, told, "fp32")
    return Seen(figures=figures)


def _probed(ranks: Any, box: Path, settings: trainings.Settings) -> tuple[int, int, list[float], list[float]]:
    """Return what the probe found, the share, and three losses beside those of a training that was told."""
    from vastrun.trainer.engine.memory import probe_micro_batch

    share = settings["batch"] // ranks.rank.world_size
    room = _peak(ranks, box, {**settings, "micro_batch": share // 2})
    with _no_more_than(room, share // 2, ranks) as limit:
        session = trainings.begin(ranks, box, {**settings, "probe": "on"})
        limit(session)
        session = probe_micro_batch(session, trainings.heart_of(session))
        found = session.plan.micro_batch
        session, losses = trainings.learn(session, 0, 3)
        session.loader.close()
    other, told = trainings.learn(trainings.begin(ranks, box, {**settings, "micro_batch": found}), 0, 3)
    other.loader.close()
    return found, share, losses, told


def _peak(ranks: Any, box: Path, settings: trainings.Settings) -> int:
    """Return what the allocator takes of a GPU for two steps, on the rank that needs most."""
    import gc

    import torch

    if ranks.device.type == "cpu":
        return 0
    torch.cuda.reset_peak_memory_stats(ranks.device)
    session, _ = trainings.learn(trainings.begin(ranks, box, settings), 0, 2)
    session.loader.close()
    peak = torch.cuda.max_memory_reserved(ranks.device)
    del session
    gc.collect()
    torch.cuda.empty_cache()
    return int(ranks.all_reduce_max(float(peak))[0])


@contextmanager
def _no_more_than(room: int, windows: int, ranks: Any) -> Iterator[Any]:
    """Limit a GPU's memory to so many bytes and a quarter; on the CPU, a model to so many windows."""
    import torch

    def fail(_: Any, inputs: tuple[Any, ...]) -> None:
        if len(inputs[0]) > windows:
            raise torch.OutOfMemoryError("injected")

    if ranks.device.type == "cpu":
        yield lambda session: session.operator.register_forward_pre_hook(fail)
        return
    total = torch.cuda.get_device_properties(ranks.device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, 1.25 * room / total), ranks.device)
    yield lambda _: None
    torch.cuda.set_per_process_memory_fraction(1.0, ranks.device)


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


def check_retry(place: Place, folder: Path) -> Seen:
    """Ask for more than there is in one step, which is done again with half: the curve is the same."""
    settings: trainings.Settings = {"batch": 16, "out_of_memory": "retry"}
    ranks = place.ranks(2)
    box = trainings.box_of(folder / "box", place, settings, ranks=ranks)
    answers = together(place, _retried, ranks, box, settings)
    micro_batch, losses, told = answers[0]
    share = settings["batch"] // ranks
    expect(micro_batch == share // 4, f"it computes {micro_batch} windows at once, not {share // 4}")
    return Seen(figures=beside({f"ddp x{ranks}": losses}, told, "fp32"))


def _retried(ranks: Any, box: Path, settings: trainings.Settings) -> tuple[int, list[float], list[float]]:
    """Fail in a forward pass of the last rank, then in a backward pass, and train on."""
    last = ranks.rank.rank == ranks.rank.world_size - 1
    session = trainings.begin(ranks, box, settings)
    places = ["forward", "backward"] if last else []

    def ask(_module: Any, inputs: tuple[Any, ...], output: Any) -> None:
        if places == ["forward", "backward"]:
            _take_too_much(places, ranks.device)
        elif places:
            output.register_hook(lambda _: _take_too_much(places, ranks.device) if places else None)

    hook = session.operator.register_forward_hook(ask)
    session, losses = trainings.learn(session, 0, trainings.STEPS)
    hook.remove()
    session.loader.close()
    other, told = trainings.learn(
        trainings.begin(ranks, box, {**settings, "out_of_memory": "restart"}), 0, trainings.STEPS
    )
    other.loader.close()
    return session.plan.micro_batch, losses, told


def _take_too_much(places: list[str], device: Any) -> None:
    import torch

    places.pop(0)
    torch.empty(1 << 50, dtype=torch.uint8, device=device)
    raise Broken("a petabyte was there")


def check_out_of_memory(place: Place, folder: Path) -> Seen:
    """Train a step that needs several times the memory of the GPU: it is done again in smaller parts."""
    settings: trainings.Settings = _FAR_TOO_LARGE if place.gpus else _SMALL
    box = trainings.box_of(folder / "retry", place, settings)
    job = {**settings, "out_of_memory": "retry"}
    found = together(place, _recovered, 1, box, job)[0]
    limit = max_limit(5.0) if place.gpus else None
    times = [
        Figure(
            name="retry: out of memory to the end of the step", value=found["lost_s"], unit="s", limit=limit
        ),
        Figure(name="retry: a step after it", value=found["step_s"], unit="s"),
    ]
    name = f"retry, {found['micro_batch']} of {settings['batch']} windows at once"
    seen = [*times, *beside({name: found["losses"]}, found["told"], "fp32")]
    if not place.gpus:
        return Seen(figures=seen)
    expect(found["micro_batch"] < settings["batch"], "all windows fit: nothing was out of memory")
    restarted = {
        **settings,
        "steps": 4,
        "checkpoint_every": 4,
        "out_of_memory": "restart",
        "profile": {"step": None, "memory": True},
    }
    with trainings.supervised(trainings.box_of(folder / "restart", place, restarted)) as run:
        outcome = run.outcome()
        trainings.expect_reason(run, outcome, "finished")
    starts = [(start.reason, start.micro_batch) for start in outcome.starts]
    expect(len(starts) > 1 and all(reason == "oom" for reason, _ in starts[:-1]), f"the starts were {starts}")
    snapshot = run.box / memory_path(0)
    expect(snapshot.exists(), f"no snapshot of the memory was written: {run.log()[-2000:]}")
    sizes = " to ".join(str(size) for _, size in starts)
    return Seen(
        text=f"restart: {sizes} windows at once; snapshot of {snapshot.stat().st_size >> 20} MiB",
        figures=seen,
    )


_FAR_TOO_LARGE: trainings.Settings = {
    "batch": 4096,
    "unroll": 2,
    "data": {"betas": [1.0], "train": 512, "test": 2, "points": 2048, "frames": 11},
    "model": {"dim": 256, "depth": 4, "heads": 4, "patch": 4},
}
"""About 240 GiB of activations."""


def _recovered(ranks: Any, box: Path, settings: trainings.Settings) -> dict[str, Any]:
    """Return the losses after an out of memory, and those of a training that was told the size that fits."""
    import gc
    import time

    import torch

    session = trainings.begin(ranks, box, settings)
    places = [] if ranks.device.type == "cuda" else ["forward", "backward"]

    def ask(*_: Any) -> None:
        if places:
            _take_too_much(places, ranks.device)

    session.operator.register_forward_hook(ask)
    times, losses = [], []
    for step in range(2):
        began = time.perf_counter()
        session, points = trainings.learn(session, step, step + 1)
        times.append(time.perf_counter() - began)
        losses += points
    session.loader.close()
    size = session.plan.micro_batch
    del session
    gc.collect()
    if ranks.device.type == "cuda":
        torch.cuda.empty_cache()
    told = {**settings, "micro_batch": size, "out_of_memory": "restart"}
    other, expected = trainings.learn(trainings.begin(ranks, box, told), 0, 2)
    other.loader.close()
    return {
        "micro_batch": size,
        "losses": losses,
        "told": expected,
        "lost_s": times[0] - times[1],
        "step_s": times[1],
    }


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
    "model": {"dim": 512, "depth": 6, "heads": 8, "patch": 4},
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
