"""Judgement of a run whose machines were destroyed: where it continued, what it ended with, what it left."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from benchmarks.chaos.frameworks.plans import Plan, Program
from benchmarks.chaos.layouts.train import newest_step
from vastrun.contract.checkpoint_folder import DamagedError, newest_first, verify

Weights = Mapping[str, torch.Tensor]

_STARTS = re.compile(r"rank0 starts after step (\d+)$", re.MULTILINE)
_SAVED = re.compile(r"^saved step (\d+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What is known of one run."""

    plan: Plan
    starts: tuple[int, ...]
    """The step after which the program started on each machine."""
    newest: tuple[int, ...]
    """The step of the newest checkpoint that had been downloaded when each machine was destroyed; 0: none."""
    incomplete: int
    """Starts from a checkpoint that the program had not finished, or that fails its checksums."""
    difference: float
    """The largest difference of a final weight from that of the undisturbed run."""
    left_rented: int
    wrong: str
    """Why the verdicts cannot be believed; empty when they can."""

    @property
    def continued(self) -> bool:
        """Each machine started from the newest checkpoint that was downloaded, afresh only without one."""
        return self.starts == (0, *self.newest)

    @property
    def started_afresh(self) -> int:
        """Starts on a later machine without any checkpoint."""
        return self.newest.count(0)

    @property
    def is_good(self) -> bool:
        passed = self.continued and not self.incomplete and self.difference == 0
        return passed and not self.left_rented and not self.wrong

    def __str__(self) -> str:
        steps = ", ".join(map(str, self.plan.steps))
        starts = ", ".join(map(str, self.starts))
        faults = [
            "" if self.continued else f"NOT FROM THE NEWEST: {self.newest}",
            self.incomplete and f"INCOMPLETE: {self.incomplete}",
            self.difference and f"OTHER WEIGHTS: {self.difference:.2g}",
            self.left_rented and f"LEFT RENTED: {self.left_rented}",
            self.wrong and f"WRONG: {self.wrong}",
        ]
        what = f"{self.plan.number:3}  {self.plan.program.name:22}  destroyed at step {steps}"
        return "  ".join([f"{what}; started after {starts}", *map(str, filter(None, faults))])


def load_weights(path: Path) -> Weights:
    """Load the weights that a program saved at its end."""
    if path.suffix == ".json":
        return {name: torch.tensor(values) for name, values in json.loads(path.read_text()).items()}
    return load_file(path) if path.suffix == ".safetensors" else torch.load(path, weights_only=True)


def judge(
    plan: Plan,
    *,
    rows: Sequence[Any],
    exit_code: int,
    logs: Sequence[str],
    left_rented: int,
    expected: Weights,
) -> Judged:
    """Judge a chain of runs. `logs`: what rank 0 had printed on each machine that was destroyed."""
    runs = sorted(rows, key=lambda row: row["created_at"])
    folders = [Path(run["out_dir"]) for run in runs]
    newest, incomplete, done = [], 0, {0}
    for folder, log in zip(folders, logs, strict=False):
        done |= {int(step) for step in _SAVED.findall(log)}
        step = max(newest_in(folder / "checkpoints", plan.program), *newest, 0)
        incomplete += step not in done or not _is_intact(folder)
        newest.append(step)
    return Judged(
        plan=plan,
        starts=tuple(step for folder in folders for step in starts_in(folder)),
        newest=tuple(newest),
        incomplete=incomplete,
        difference=difference(folders[-1], plan.program, expected),
        left_rented=left_rented,
        wrong=_wrong(plan, runs, exit_code),
    )


def newest_in(checkpoints: Path, program: Program) -> int:
    """Return the step at which a program continues from the newest checkpoint of a folder; 0: it has none."""
    latest, found = checkpoints / "latest.json", newest_first(checkpoints)
    if program.layout is None:
        return int(json.loads(latest.read_text())["step"]) if latest.is_file() else 0
    calm = [each for each in found if json.loads((each / "state.json").read_text())["is_calm"]]
    return max(
        (newest_step(program.layout, each / "files" / "code") for each in (calm or found)[:1]), default=0
    )


def _is_intact(folder: Path) -> bool:
    latest = folder / "checkpoints" / "latest.json"
    try:
        return not latest.exists() or bool(verify(latest.parent / json.loads(latest.read_text())["path"]))
    except DamagedError:
        return False


def starts_in(folder: Path) -> list[int]:
    """Return the steps after which the program of a run started."""
    log = folder / "log.txt"
    printed = log.read_text(errors="replace") if log.is_file() else ""
    return [int(step) for step in _STARTS.findall(printed)]


def difference(folder: Path, program: Program, expected: Weights) -> float:
    """Return the largest difference of a run's final weights; infinite where there are none."""
    file = folder / "outputs" / program.weights
    weights = load_weights(file) if file.is_file() else {}
    if weights.keys() != expected.keys():
        return float("inf")
    return max(float((weights[name] - expected[name]).abs().max()) for name in expected)


def _wrong(plan: Plan, runs: Sequence[Any], exit_code: int) -> str:
    ends = [(run["verdict"], run["cause"]) for run in runs]
    *before, last = ends
    if len(before) != len(plan.steps):
        return f"{len(plan.steps)} machine(s) destroyed, but {len(runs)} run(s): {ends}"
    if any(cause != "lost" for _, cause in before):
        return f"a destroyed machine's run ended otherwise: {before}"
    if last[0] != "SUCCEEDED" or exit_code != 0:
        return f"the last run ended with {last[0]} and exit code {exit_code}"
    return ""
