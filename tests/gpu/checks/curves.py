"""Curves: the same training on GPUs, spread in every way, beside the CPU's."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.gpu.check import Figure, Place, Seen, expect
from tests.gpu.checks.figures import measured
from tests.gpu.comparing import beside, fell
from tests.gpu.ranks import together
from tests.gpu.trainings import Settings, box_of, curves

_STRATEGIES = ("ddp", "fsdp2")
_QUICK: Settings = {
    "batch": 48,
    "unroll": 3,
    "data": {"betas": [1.0], "train": 64, "test": 8, "points": 64, "frames": 21},
    "model": {"name": "latent", "dim": 64, "depth": 4, "heads": 4, "patch": 4},
}
"""Of the quickstart's size, where the host is slower than the GPU."""
_TINY: Settings = {"unroll": 1, "model": {"name": "latent", "dim": 32, "depth": 1, "heads": 2, "patch": 4}}
_MUON: Settings = {"optim": {"name": "muon"}}
_FNO: Settings = {"model": {"name": "fno", "dim": 16, "depth": 2, "modes": 8}}


def check_strategies(precision: str, place: Place, folder: Path) -> Seen:
    """Train single, ddp and fsdp2 in a precision, beside single on the CPU."""
    same: Settings = {"precision": precision}
    ranks = place.ranks(2)
    reference = _on_cpu(place, folder, same)
    jobs = {f"{name} x{ranks}": {**same, "strategy": name} for name in _STRATEGIES}
    found = _trained(place, folder, {"single": same}) | _trained(place, folder, jobs, ranks)
    return _seen(found, reference, precision)


def check_models(place: Place, folder: Path) -> Seen:
    """Train an FNO, whose weights are complex, and with TF32, beside the CPU."""
    jobs = {"fno": _FNO}
    found = beside(_trained(place, folder, jobs), _on_cpu(place, folder, _FNO), "fp32")
    rounded = _trained(place, folder, {"tf32": {"precision": "tf32"}})
    return Seen(figures=[*found, *beside(rounded, _on_cpu(place, folder, {}), "tf32")])


def check_muon(place: Place, folder: Path) -> Seen:
    """Train with Muon, alone and sharded. On GPUs its iteration computes in bf16."""
    ranks = place.ranks(2)
    jobs = {f"ddp x{ranks}": {**_MUON, "strategy": "ddp"}, f"fsdp2 x{ranks}": {**_MUON, "strategy": "fsdp2"}}
    found = _trained(place, folder, {"single": _MUON}) | _trained(place, folder, jobs, ranks)
    return _seen(found, _on_cpu(place, folder, _MUON), "bf16")


def check_offload(place: Place, folder: Path) -> Seen:
    """Keep weights and optimiser state in main memory, with AdamW and with Muon, in fp32 and in bf16."""
    ranks = place.ranks(2)
    offload: dict[str, Any] = {"strategy": "fsdp2", "fsdp2": {"cpu_offload": place.gpus > 0}}
    jobs = {"adamw": offload, "muon": {**offload, **_MUON}, "bf16": {**offload, "precision": "bf16"}}
    found = _trained(place, folder, jobs, ranks)
    figures = beside({"adamw": found["adamw"]}, _on_cpu(place, folder, {}), "fp32")
    figures += beside({"muon": found["muon"]}, _on_cpu(place, folder, _MUON), "bf16")
    figures += beside({"bf16": found["bf16"]}, _on_cpu(place, folder, {"precision": "bf16"}), "bf16")
    return Seen(figures=figures)


def check_compiled(whole: str, place: Place, folder: Path) -> Seen:
    """Compile block by block or whole, beside the same training without, on the same device."""
    jobs = {"off": _TINY, whole: {**_TINY, "compile": whole}}
    ranks = place.ranks(2)
    spread = {f"{name} x{ranks}": {**_TINY, "compile": whole, "strategy": name} for name in _STRATEGIES}
    if not place.gpus or whole == "max-autotune":  # which takes minutes for each of them
        spread = {}
    found = _compiled(place, folder, jobs) | _compiled(place, folder, spread, ranks)
    return _seen(found, found.pop("off"), "fp32")


def check_graphs(place: Place, folder: Path) -> Seen:
    """Train with CUDA graphs and without, with the settings of trainings: the losses, and the speed."""
    job = _QUICK if place.gpus else _TINY
    graphs = {**job, "cuda_graphs": place.gpus > 0}
    jobs = {
        "eager": job,
        "blocks": {**job, "compile": "blocks"},
        "blocks, CUDA graphs": {**graphs, "compile": "blocks"},
        "whole, CUDA graphs, micro-batches": {
            **graphs,
            "compile": "whole",
            "micro_batch": job.get("batch", 8) // 2,
        },
    }
    if not place.gpus:
        jobs.pop("blocks")
    found = _compiled(place, folder, jobs)
    seen = _seen(found, found.pop("eager"), "fp32")
    if not place.gpus:
        return seen
    speeds = together(place, _speeds, 1, folder / "compiled-1", jobs)[0]
    figures = [Figure(name=name, value=speed, unit="steps/s") for name, speed in speeds.items()]
    ratio = speeds["blocks, CUDA graphs"] / speeds["blocks"]
    figures.append(Figure(name="CUDA graphs", value=ratio, unit="of the steps/s without"))
    return Seen(figures=[*seen.figures, *figures])


def _speeds(ranks: Any, box: Path, jobs: Mapping[str, Settings]) -> dict[str, float]:
    return {name: measured(ranks, box, settings)["steps_per_s"] for name, settings in jobs.items()}


def check_two_on_one(place: Place, folder: Path) -> Seen:
    """Train two ranks on one GPU over gloo, so that DDP runs where there is only one."""
    job: Settings = {"strategy": "ddp"}
    found = _trained(replace(place, gpus=min(place.gpus, 1)), folder, {"ddp x2": job}, 2)
    return _seen(found, _on_cpu(place, folder, {}), "fp32")


def _seen(found: Mapping[str, Sequence[float]], reference: Sequence[float], precision: str) -> Seen:
    for name, losses in found.items():
        expect(fell(losses), f"{name} learns nothing: its losses are {[round(loss, 4) for loss in losses]}")
    figures: list[Figure] = beside(found, reference, precision)
    return Seen(figures=figures)


def _on_cpu(place: Place, folder: Path, settings: Settings) -> list[float]:
    return _trained(place.cpu, folder, {"cpu": settings})["cpu"]


def _trained(
    place: Place, folder: Path, jobs: Mapping[str, Settings], ranks: int = 1
) -> dict[str, list[float]]:
    box = folder / f"{place.device}-{ranks}"
    if not box.exists():
        box_of(box, place, next(iter(jobs.values())), ranks=ranks)
    found: dict[str, list[float]] = together(place, curves, ranks, box, jobs)[0]
    return found


def _compiled(
    place: Place, folder: Path, jobs: Mapping[str, Settings], ranks: int = 1
) -> dict[str, list[float]]:
    if not jobs:
        return {}
    box = folder / f"compiled-{ranks}"
    if not box.exists():
        box_of(box, place, next(iter(jobs.values())), ranks=ranks)
    first: dict[str, list[float]] = together(place, _curves_compiled, ranks, box, jobs)[0]
    return first


def _curves_compiled(ranks: Any, box: Path, jobs: Mapping[str, Settings]) -> dict[str, list[float]]:
    """Train one after the other; what is to be compiled must be."""
    import torch._dynamo.utils
    import torch._inductor.config

    found = {}
    for name, settings in jobs.items():
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        if settings.get("compile") != "max-autotune":  # which compiles many kernels
            torch._inductor.config.compile_threads = 1  # no pool of workers that each import torch
        found |= curves(ranks, box, {name: settings})
        compiled = torch._dynamo.utils.counters["frames"]["ok"]
        expect(bool(compiled) == ("compile" in settings), f"{name}: {compiled} functions were compiled")
    return found
