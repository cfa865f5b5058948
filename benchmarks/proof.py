"""`python -m benchmarks.proof`: jobs of configs/ learn, by the installed command; status 1 when a gate fails.

Every score stands beside its floors, what is reached without having learned: predicting no change, the mean
over space, the mean over the training set, and the model itself when it is not told the PDE's parameter.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vastrun.launcher.config.job_loader import load_job
from vastrun.trainer.evaluation.evaluation import WHOLE

CONFIGS = Path("configs")
PAGE = Path("docs/evaluation.md")
BEGIN, END = "<!-- proof: written by make proof -->\n", "<!-- end of proof -->\n"

FLOORS = {
    "persistence": "persistence",
    "spatial_mean": "mean over space",
    "training_mean": "training mean",
    "linear_map": "linear map",
    "kernel_ridge": "kernel ridge",
    "blind": "without the parameter",
}
"""By the name that an evaluation has for them: what the table calls them."""


@dataclass(frozen=True, kw_only=True)
class Gate:
    """What a task's error must be below: the mean of all ratios, their median, or pooled."""

    task: str
    below: float
    error: str = "nrmse"


@dataclass(frozen=True, kw_only=True)
class Proof:
    """A training, and what it must reach."""

    name: str
    job: str
    gates: tuple[Gate, ...]
    changes: tuple[str, ...] = ()
    """As given to `--set`."""


PROOFS = (
    Proof(
        name="two tasks",
        job="learn_2task",
        gates=(Gate(task="advection", below=0.03), Gate(task="darcy", below=0.02)),
    ),
    Proof(
        name="three tasks",
        job="learn_3task",
        gates=(
            Gate(task="advection", below=0.04),
            Gate(task="darcy", below=0.02),
            Gate(task="burgers", below=0.04, error="nrmse_median"),
            Gate(task="burgers", below=0.08, error="nrmse_pooled"),
        ),
    ),
    Proof(name="FNO", job="fno_advection", gates=(Gate(task="advection", below=0.09),)),
    Proof(
        name="FNO at nu 0.01",
        job="fno_advection",
        gates=(Gate(task="burgers", below=0.08),),
        changes=("train.data={task: burgers, nus: [0.01]}",),
    ),
    Proof(
        name="spectral operator",
        job="fno_advection",
        gates=(Gate(task="advection", below=0.03),),
        changes=("train.model.name=spectral",),
    ),
    Proof(
        name="spectral operator at nu 0.01",
        job="fno_advection",
        gates=(Gate(task="burgers", below=0.08),),
        changes=("train.model.name=spectral", "train.data={task: burgers, nus: [0.01]}"),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Training:
    """One that succeeded."""

    scores: Mapping[str, Any]
    """By task, as its evaluation wrote them."""

    def of(self, gate: Gate, predictor: str) -> float | None:
        """The error of a predictor, as the gate counts it; None where it says nothing of the task."""
        error: float | None = self.scores[gate.task]["parts"][WHOLE].get(predictor, {}).get(gate.error)
        return error


def main() -> None:
    options = _parser().parse_args()
    rows, holds = [], True
    for proof in PROOFS:
        trainings = [_train(proof, seed) for seed in range(options.seeds)]
        rows += [_row(proof, gate, trainings) for gate in proof.gates]
        holds &= all(_passes(gate, trainings) for gate in proof.gates)
    table = "\n".join([*_head(options.seeds), *rows]) + "\n"
    print(table)
    _write(table)
    sys.exit(0 if holds else "error: a gate failed: its row says so")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proof", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2, help="how many trainings of each")
    return parser


def _train(proof: Proof, seed: int) -> Training:
    """The job with this seed, on this computer, as a user starts it; its screen is this one."""
    changes = [word for change in (f"train.seed={seed}", *proof.changes) for word in ("--set", change)]
    with tempfile.TemporaryDirectory() as folder:
        outputs = Path(folder) / "home"
        command = [str(Path(sys.executable).with_name("vastrun")), "launch", str(_file(proof)), *changes]
        done = subprocess.run(
            [*command, "--provider", "local", "--out", str(outputs)],
            env={**os.environ, "XDG_STATE_HOME": folder},
        )
        if done.returncode:
            sys.exit(f"error: {proof.job} did not succeed: exit code {done.returncode}")
        return Training(scores=json.loads((outputs / "report/scores.json").read_text()))


def _file(proof: Proof) -> Path:
    return CONFIGS / f"{proof.job}.yaml"


def _passes(gate: Gate, trainings: Sequence[Training]) -> bool:
    return all(error is not None and error < gate.below for error in _errors(gate, trainings))


def _errors(gate: Gate, trainings: Sequence[Training]) -> list[float | None]:
    return [training.of(gate, "rollout") for training in trainings]


def _head(seeds: int) -> list[str]:
    titles = ["training", "error", *(f"seed {seed}" for seed in range(seeds)), "gate", *FLOORS.values()]
    return [_line(titles), _line("---" for _ in titles)]


def _row(proof: Proof, gate: Gate, trainings: Sequence[Training]) -> str:
    kind = {"nrmse": "", "nrmse_median": ", median", "nrmse_pooled": ", pooled"}[gate.error]
    passed = "" if _passes(gate, trainings) else " FAILED"
    return _line(
        [
            f"{proof.name}, {_steps(proof):,} steps",
            f"{gate.task}{kind}",
            *(f"**{_shown(error)}**" for error in _errors(gate, trainings)),
            f"{gate.below:g}{passed}",
            *(_shown(trainings[0].of(gate, floor)) for floor in FLOORS),
        ]
    )


def _steps(proof: Proof) -> int:
    train = load_job(_file(proof).read_text(), proof.job, proof.changes).train
    assert train is not None
    return train.steps


def _shown(error: float | None) -> str:
    return "-" if error is None else f"{error:.3g}"


def _line(cells: Sequence[str] | Iterator[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _write(table: str) -> None:
    """The page's table is this one."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}{table}{END}{after}")


if __name__ == "__main__":
    main()
