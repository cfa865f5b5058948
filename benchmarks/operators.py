"""Samples a second of the latent operator, beside a Fourier neural operator with as many parameters."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch.autograd.profiler_util import FunctionEventAvg
from torch.profiler import ProfilerActivity, profile

from benchmarks.figures import Claim, Limit, in_turns, min_limit, show
from vastrun.trainer import models
from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.engine.optimiser import adamw
from vastrun.trainer.job.config import ModelConfig, OptimConfig
from vastrun.trainer.models.operator import Domain, NetworkOperator
from vastrun.trainer.models.weights import count_parameters
from vastrun.trainer.stages.objective import UnrollLoss

ROUNDS = 7
UNROLL = 3
FRAMES = 20
"""Of a rollout."""
WIDTHS = range(8, 513)
"""Channels that the Fourier neural operator may have."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """What both models do."""

    name: str
    grid: tuple[int, ...]
    batch: int
    """Windows of a training step, and trajectories of a rollout."""
    patch: int
    """Points of a patch of the latent operator, along an axis."""
    modes: int
    """Of the Fourier neural operator, whose width follows from the other's size."""


CASES = tuple(
    Case(name=f"{grid_name} points, patch {patch}", grid=grid, batch=batch, patch=patch, modes=modes)
    for grid_name, grid, batch, modes in (("1-D, 256", (256,), 32, 16), ("2-D, 64 x 64", (64, 64), 4, 12))
    for patch in (4, 8, 16)
)
AS_FAST_FROM = 8
"""Points of a patch, from which on the latent operator has to be as fast as the other, on a CPU."""
SIZES = {"cpu": ModelConfig(), "cuda": ModelConfig(dim=384, depth=12, heads=8, mlp_ratio=4)}
"""Of the latent operator, on each device."""
FASTER = {"cpu": 1, "cuda": 16}
"""How many times the batch a device takes."""
KINDS = {
    "products": ("aten::mm", "aten::addmm", "aten::bmm"),
    "attention": ("aten::_scaled_dot_product",),
    "GELU": ("aten::gelu",),
    "norms": ("aten::native_layer_norm", "aten::_fused_rms_norm"),
    "Fourier transforms": ("aten::_fft",),
}
"""What the time goes into: how the names of such operations begin."""


def run() -> bool:
    """Print how fast both train and roll out, case by case; on a CPU, what the time goes into.

    True when larger patches are as fast as the Fourier neural operator.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    passed = []
    for case in CASES:
        domain = Domain(grid=case.grid, conditions=2)
        latent = models.make(replace(SIZES[device], patch=case.patch), [domain])
        fno = as_large(latent, domain, case.modes)
        sizes = f"{count_parameters(latent):,} parameters, fno {count_parameters(fno):,}"
        print(f"{case.name}: {sizes}, on {device}", flush=True)
        candidate, baseline = latent.to(device), fno.to(device)
        windows = _windows(case, device, FASTER[device])
        training, rollout = (
            [way(each, windows) for each in (candidate, baseline)] for way in (_training, _rollout)
        )
        limit = min_limit(1.0) if device == "cpu" and case.patch >= AS_FAST_FROM else None
        passed.append(_compare("  training", training, "windows/s", limit))
        passed.append(_compare("  rollout", rollout, "frames/s", limit))
        if device == "cpu":
            for name, ways in (("training", training), ("rollout", rollout)):
                for model, work in zip(("latent", "fno"), ways, strict=True):
                    print(f"  {name}, {model}: {_shares(work)}", flush=True)
    return all(passed)


def as_large(latent: NetworkOperator, domain: Domain, modes: int) -> NetworkOperator:
    """The Fourier neural operator whose number of parameters is the nearest."""
    return _made(width_as_large(count_parameters(latent), domain, modes), domain, modes)


def width_as_large(size: int, domain: Domain, modes: int) -> int:
    """The channels with which it has about as many parameters."""

    def size_at(dim: int) -> int:
        with torch.device("meta"):
            return count_parameters(_made(dim, domain, modes))

    # It grows with the channels.
    above = WIDTHS[bisect_left(WIDTHS, size, 1, len(WIDTHS) - 1, key=size_at)]
    return min((above - 1, above), key=lambda dim: abs(size_at(dim) - size))


def _made(dim: int, domain: Domain, modes: int) -> NetworkOperator:
    return models.make(replace(ModelConfig(), name="fno", dim=dim, modes=modes), [domain])


def _windows(case: Case, device: str, times: int) -> Windows:
    batch = case.batch * times
    return Windows(
        fields=torch.randn(batch, UNROLL + 1, 1, *case.grid, device=device),
        noise=torch.zeros(batch, 1, *case.grid, device=device),
        level=torch.zeros(batch, device=device),
        conditions=torch.randn(batch, 2, device=device),
    )


def _training(operator: NetworkOperator, windows: Windows) -> Callable[[], float]:
    """Windows a second of whole steps."""
    objective = UnrollLoss(operator)
    optimizer = adamw(operator, OptimConfig())

    def step() -> float:
        optimizer.zero_grad()
        objective(windows)[0].backward()
        optimizer.step()
        return float(len(windows.fields))

    return lambda: _rate(step)


def _rollout(operator: NetworkOperator, windows: Windows) -> Callable[[], float]:
    """Frames a second, each predicted from the one before."""

    def roll() -> float:
        u = windows.fields[:, 0]
        with torch.no_grad():
            for _ in range(FRAMES):
                u = operator(u, windows.conditions)
        return float(FRAMES * len(u))

    return lambda: _rate(roll)


def _rate(work: Callable[[], float]) -> float:
    """What is done a second, when all of it is."""
    began = time.perf_counter()
    done = work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return done / (time.perf_counter() - began)


def _compare(name: str, ways: list[Callable[[], float]], unit: str, limit: Limit | None) -> bool:
    candidate, baseline = ways
    pair = in_turns(candidate, baseline, ROUNDS)
    return show(name, pair, unit, Claim(pair.ratio, "of fno", limit), baseline="fno")


def _shares(work: Callable[[], float]) -> str:
    """Where its time goes, as torch's profiler sees it."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        work()
    events = seen.key_averages()
    whole = sum(event.self_cpu_time_total for event in events)
    of_kinds = {
        kind: sum(_time(event) for event in events if event.key.startswith(names)) / whole
        for kind, names in KINDS.items()
    }
    summary = {**of_kinds, "the rest": 1 - sum(of_kinds.values())}
    return ", ".join(f"{kind} {share:.0%}" for kind, share in summary.items() if share >= 0.005)


def _time(event: FunctionEventAvg) -> float:
    """That of an operation; of a norm, which a CPU makes of several, that of its parts too."""
    return float(event.cpu_time_total if "norm" in event.key else event.self_cpu_time_total)
