"""What the stages after the operator are worth: each upon the checkpoint of the one before, by seed."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.box import prepare, train_with_vastrun
from benchmarks.figures import mean_with_range
from vastrun.contract import layout
from vastrun.trainer.evaluation.evaluation import WHOLE
from vastrun.trainer.evaluation.report import SCORES as SCORES_FILE
from vastrun.trainer.job.config import ModelConfig, OptimConfig, SamplerConfig, TrainConfig, WandbConfig
from vastrun.trainer.job.data_config import DataConfig

SEEDS = 3
SMALL = TrainConfig(
    steps=400,
    batch=24,
    data=(DataConfig(task="burgers", train=128, test=32),),
    model=ModelConfig(dim=48, depth=3, patch=4),
    optim=OptimConfig(lr=0.003),
    wandb=WandbConfig(mode="off"),
    plots=False,
)
GENTLE = OptimConfig(lr=0.001)
"""Of networks that begin with what another one knows."""
DARCY = replace(SMALL, data=(DataConfig(task="darcy", train=256, test=64, points=32),))
SCORES = {
    "rollout_nrmse": "rollout nRMSE",
    "one_step_nrmse": "one step",
    "rollout_spectrum_low": "error, low",
    "rollout_spectrum_mid": "mid",
    "rollout_spectrum_high": "high wavenumbers",
    "stage_calls": "calls",
    "stage_cost": "time of a frame",
}
"""By name in the final record: what the table calls them."""
HORIZONS = (1, 2, 3, 5, 10, 20)
"""Frames of a rollout."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One training of the table."""

    name: str
    former: str | None = None
    """Of the row whose checkpoint it begins from."""
    config: TrainConfig


@dataclass(frozen=True, kw_only=True)
class Training:
    """What one came to."""

    scores: Mapping[str, float]
    curve: Sequence[float]
    """nRMSE of its rollouts, frame by frame."""


BURGERS = (
    Row(name="operator", config=SMALL),
    Row(name="operator, trained as long as it and the refiner", config=replace(SMALL, steps=2 * SMALL.steps)),
    Row(name="refine", former="operator", config=replace(SMALL, stage="refine", optim=GENTLE)),
    Row(
        name="distill",
        former="refine",
        config=replace(SMALL, stage="distill", optim=GENTLE, steps=SMALL.steps // 2),
    ),
)
STEADY = (
    Row(name="operator", config=DARCY),
    Row(
        name="steady, mean of 8 draws",
        former="operator",
        config=replace(DARCY, stage="steady", optim=GENTLE, sampler=SamplerConfig(draws=8)),
    ),
)


def run() -> None:
    """Three tables: Burgers over all seeds, at the end and along its rollouts; Darcy for one."""
    by_seed = [_trained(BURGERS, seed) for seed in range(SEEDS)]
    _show("Burgers", BURGERS, by_seed)
    _show_horizons("Burgers", BURGERS, by_seed)
    _show("Darcy", STEADY, [_trained(STEADY, 0)])


def _show(title: str, rows: Sequence[Row], by_seed: Sequence[Mapping[str, Training]]) -> None:
    seeds = len(by_seed)
    print(f"\n| {title}, {seeds} seeds | {' | '.join(SCORES.values())} |\n| --- |{' --: |' * len(SCORES)}")
    for row in rows:
        print(
            f"| {row.name} | {' | '.join(_cells([each[row.name].scores for each in by_seed]))} |", flush=True
        )


def _show_horizons(title: str, rows: Sequence[Row], by_seed: Sequence[Mapping[str, Training]]) -> None:
    """The error of single frames of a rollout, in those of the first row at the same frame."""
    print(f"\n| {title}, frame | {' | '.join(map(str, HORIZONS))} |\n| --- |{' --: |' * len(HORIZONS)}")
    for row in rows:
        cells = []
        for frame in HORIZONS:
            curves = [(each[row.name].curve, each[rows[0].name].curve) for each in by_seed]
            cells.append(mean_with_range([own[frame - 1] / first[frame - 1] for own, first in curves]))
        print(f"| {row.name} | {' | '.join(cells)} |", flush=True)


def _trained(rows: Sequence[Row], seed: int) -> dict[str, Training]:
    """Each row, trained one after the other on one rank."""
    with tempfile.TemporaryDirectory() as folder:
        return {row.name: _train(Path(folder), row, seed) for row in rows}


def _train(folder: Path, row: Row, seed: int) -> Training:
    box = prepare(folder / row.name, replace(row.config, seed=seed), ranks=1)
    if row.former:
        (box / layout.RESUME).symlink_to(folder / row.former / layout.CHECKPOINTS)
    train_with_vastrun(box)
    final = json.loads((box / layout.FINAL).read_text())
    print(f"seed {seed}, {row.name}: {json.dumps(final['scores'])}", file=sys.stderr, flush=True)
    [of_task] = json.loads((box / layout.EVALUATION / SCORES_FILE).read_text()).values()
    curve = of_task["parts"][WHOLE]["rollout"]["nrmse_by_frame"]
    return Training(scores=_with_cost(final["scores"]), curve=curve)


def _with_cost(scores: Mapping[str, float]) -> Mapping[str, float]:
    """And the time of a frame, in those of the operator."""
    if "stage_ms" not in scores:
        return {**scores, "stage_calls": 1.0, "stage_cost": 1.0}
    return {**scores, "stage_cost": scores["stage_ms"] / scores["operator_ms"]}


def _cells(by_seed: Sequence[Mapping[str, float]]) -> Iterator[str]:
    for name in SCORES:
        values = [scores[name] for scores in by_seed if name in scores]
        yield mean_with_range(values) if values else "-"
