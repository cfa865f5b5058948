"""What lies in a run's folder, as its index tells it: looked up when the outputs are home."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from launcher.core import Run
from launcher.gate import caps
from launcher.gate.manifest import latest_of
from launcher.gate.metrics import Curve, curves_of
from launcher.outputs.folder import Outputs
from trainer.contract import layout

_VALIDATION = b'"validation'
_MOST_WANDB = 20
_OFFLINE = re.compile(r"offline-run-\d{8}_\d{6}-[\w.-]{1,128}", re.ASCII)
"""Folders that W&B makes. Any other name is not told: it would go into a command."""


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What is there."""

    names: Mapping[str, str] = field(default_factory=dict)
    """Where it lies below the folder, by its path on the box."""
    newest: str | None = None
    """Name of the newest checkpoint."""
    best: str | None = None
    is_training: bool = False
    """The onboard trainer's, whose checkpoints can be exported."""
    wandb: tuple[str, ...] = ()
    """Folders of W&B runs that were not sent, relative to the run's."""
    wandb_url: str = ""
    """Where W&B shows the run; empty: it was not sent."""
    scores: Mapping[str, float] = field(default_factory=dict)
    curves: tuple[Curve, ...] = ()


Index = Callable[[Run, Contents, float], Mapping[str, str]]
"""Texts by the names of their files: of a run, what came home of it, and now."""
TOLD = (
    layout.EVALUATION,
    layout.METRICS,
    layout.CHECKPOINTS,
    layout.OUTPUTS,
    layout.LOG,
    layout.TENSORBOARD,
    layout.RAW_LOGS,
    layout.STACKS,
    layout.WANDB_FILES,
    layout.RUN,
)
"""What an index may name, by its path on the box."""


def contents_of(run: Run) -> Contents:
    """List what was downloaded of the run. Raises OSError."""
    outputs = Outputs(run)
    outcome = outputs.outcome()
    places = {path: outputs.path(path) for path in TOLD}
    return Contents(
        names={
            path: place.relative_to(outputs.folder).as_posix()
            for path, place in places.items()
            if place.exists() and place != outputs.folder
        },
        newest=_checkpoint(outputs, "latest.json"),
        best=_checkpoint(outputs, "best.json"),
        is_training=outcome is not None and outcome.kind == "train",
        wandb=_offline_runs(outputs),
        wandb_url=(outcome.wandb.url if outcome and outcome.wandb else None) or "",
        scores=(outcome.scores if outcome else None) or {},
        curves=_curves(outputs.path(layout.METRICS)),
    )


def _checkpoint(outputs: Outputs, name: str) -> str | None:
    """The checkpoint that such a file names, if it is here."""
    folder = outputs.path(layout.CHECKPOINTS)
    if not (folder / name).is_file():
        return None
    with (folder / name).open("rb") as file:
        named = latest_of(file.read(caps.SMALL_FILES[f"{layout.CHECKPOINTS}/latest.json"]))
    return named if named is not None and (folder / named).is_dir() else None


def _offline_runs(outputs: Outputs) -> tuple[str, ...]:
    folder = outputs.path(layout.WANDB_FILES)
    names = sorted(path.name for path in folder.glob("offline-run-*") if _OFFLINE.fullmatch(path.name))
    return tuple((folder / name).relative_to(outputs.folder).as_posix() for name in names[-_MOST_WANDB:])


def _curves(path: Path) -> tuple[Curve, ...]:
    return curves_of(metric_lines(path)) if path.is_file() else ()


def metric_lines(path: Path, most: int = caps.METRICS_LINES) -> Iterator[bytes]:
    """Yield `most` lines of the metrics or a few more, spread over all of them. Raises OSError.

    Those that tell of a validation are spread for themselves: where one line in six does, every sixth line
    would be all of them or none.
    """
    with path.open("rb") as file:
        totals = Counter(_VALIDATION in line for line in file)
        file.seek(0)
        strides = {kind: math.ceil(total / most) for kind, total in totals.items()}
        counts = Counter[bool]()
        for line in file:
            kind = _VALIDATION in line
            if counts[kind] % strides.get(kind, 1) == 0:  # a file that grows may have become of two kinds
                yield line
            counts[kind] += 1
