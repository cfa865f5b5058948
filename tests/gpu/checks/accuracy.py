"""Accuracy: what our operator learns in the time that a tuned Fourier neural operator is given."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import equal_time
from tests.gpu.check import Figure, Place, Seen
from tests.gpu.ranks import together
from vastrun.contract.config import OptimConfig

_OPTIMISERS = (OptimConfig(lr=2e-3), OptimConfig(name="muon", lr=5e-3))
_WAYS = {
    model: [equal_time.Way(optim=optim, size=size) for size in sizes[1:] for optim in _OPTIMISERS]
    for model, sizes in equal_time.SIZES.items()
}
"""What is tried for both before they are compared: four ways each."""


def measure_equal_time(place: Place, folder: Path) -> Seen:
    """Tune the latent operator and a Fourier neural operator of its size, then train both for a minute."""
    seconds, tuned_s = (60.0, 3.0) if place.gpus else (0.5, 0.1)
    best, result = together(place, _equal_time, 1, seconds, tuned_s, place.pick(4, 1))[0]
    figures = []
    for model, found in result.items():
        name = f"{model} ({best[model]}), {found['steps']} steps"
        figures.append(Figure(name=name, value=found["median"], unit=f"nRMSE after {seconds:g} s"))
    figures.append(
        Figure(
            name="latent",
            value=result["latent"]["median"] / result["fno"]["median"],
            unit="of the FNO's error",
        )
    )
    return Seen(figures=figures)


def _equal_time(
    ranks: Any, seconds: float, tuned_s: float, tried: int
) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """Return by model how it was trained, and the result."""
    case = equal_time.CASES["burgers"]
    ways = {model: each[:tried] for model, each in _WAYS.items()}
    best, (result,) = equal_time.compare(case, ranks.device, seconds, tuned_s=tuned_s, ways=ways, seeds=1)
    return {model: str(way) for model, way in best.items()}, {
        model: asdict(found) for model, found in result.items()
    }
