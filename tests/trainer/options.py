"""A tiny training whose options are changed by their dotted keys."""

import json
from typing import Any

Options = dict[str, Any]

_SIZES: Options = {"train": 12, "test": 4, "points": 32, "frames": 9}
ADVECTION: Options = {**_SIZES, "betas": [0.4, 1.0]}
BURGERS: Options = {**_SIZES, "task": "burgers", "train": 6}
TINY: Options = {
    "steps": 6,
    "batch": 8,
    "unroll": 2,
    "log_every": 1,
    "checkpoint_every": 4,
    "data": ADVECTION,
    "model": {"name": "latent", "dim": 16, "depth": 2, "heads": 2},
    "wandb": {"mode": "off"},
    "plots": False,
}
TWO: Options = {"data": [ADVECTION, BURGERS]}
DARCY: Options = {"data": {"task": "darcy", "train": 32, "test": 4, "points": 16}}
FNO: Options = {"model.name": "fno", "model.heads": 4, "model.modes": 8}
SPECTRAL: Options = {**FNO, "model.name": "spectral", "model.points": 24}


def with_options(options: Options) -> Options:
    """The tiny training with these; a dotted key goes into its section."""
    made: Options = json.loads(json.dumps(TINY))
    for key, value in options.items():
        place, parts = made, key.split(".")
        for part in parts[:-1]:
            place = place.setdefault(part, {})
        place[parts[-1]] = value
    return made
