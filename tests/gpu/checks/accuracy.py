"""Accuracy: what our operator learns in the time that a tuned Fourier neural operator is given."""

from pathlib import Path
from typing import Any

import torch

from benchmarks.race import Candidate, Racer, search
from benchmarks.rivals import load
from tests.gpu.check import Figure, Place, Seen
from tests.gpu.ranks import together

_OPTIMISERS = ("adamw 0.002", "muon 0.005")
_CANDIDATES = {
    model: [
        Candidate(model=model, optimiser=optimiser, batch=64, options={"dim": 128, "depth": 4, **sizes})
        for sizes in tried
        for optimiser in _OPTIMISERS
    ]
    for model, tried in {
        "spectral": ({"modes": 16, "points": 32}, {"modes": 16, "points": 64}),
        "fno": ({"modes": 16}, {"modes": 24}),
    }.items()
}
"""What is tried for both before they are compared: four ways each."""


def measure_equal_time(place: Place, folder: Path) -> Seen:
    """Tune the spectral operator and a Fourier neural operator, then train both for a minute."""
    seconds, tuned_s = (60.0, 3.0) if place.gpus else (0.5, 0.1)
    result = together(place, _equal_time, 1, folder, seconds, tuned_s, place.pick(4, 1))[0]
    figures = []
    for model, found in result.items():
        name = f"{model} ({found['candidate']}), {found['steps']} steps"
        figures.append(Figure(name=name, value=found["median"], unit=f"nRMSE after {seconds:g} s"))
    figures.append(
        Figure(
            name="spectral",
            value=result["spectral"]["median"] / result["fno"]["median"],
            unit="of the FNO's error",
        )
    )
    return Seen(figures=figures)


def _equal_time(
    ranks: Any, folder: Path, seconds: float, tuned_s: float, tried: int
) -> dict[str, dict[str, Any]]:
    """Return by model how it was trained, and the result."""
    sets = load("burgers", folder, torch.device(ranks.device))
    found = {}
    for model, candidates in _CANDIDATES.items():
        *_, (best, *_) = search(sets.task, sets.held_out, candidates[:tried], tuned_s)
        racer = Racer(sets.task, best, seed=0)
        racer.train_until(seconds, seconds)
        median = racer.errors(sets.tests["test"]).nrmse.median().item()
        found[model] = {"candidate": str(best), "steps": racer.steps, "median": median}
    return found
