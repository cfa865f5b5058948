"""The errors that our operators and their rivals come to in equal time of one core.

    python -m benchmarks equal-time --cells build/equal-time/cells.json --tasks burgers darcy

Every model is tuned for each task on data that the table does not have: the same number of candidates, drawn
from the model's space, and the same time. Then it is trained once for each seed, and rolled out after 30, 60
and 120 s. A cell that is in the file of cells is not computed again: a killed command continues. With
`--device cuda` the time is wall time.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.equal_time_data import CASES, SEEDS, TUNING_SEED, Sets, load
from benchmarks.race import Racer, rollout_errors, search
from benchmarks.rivals import SPACES, Candidate, candidates
from vastrun.trainer.evaluation.learned_baselines import KERNEL_RIDGE, LINEAR_MAP, fit_baseline

MARKS = (30.0, 60.0, 120.0)
"""Seconds after which a training is evaluated; it ends after the last."""
TRIED = 6
FIRST_S = 4.0
"""Seconds of the first round of a search; half of the candidates get twice as long, and so on."""
BEGIN = "<!-- equal time: written by python -m benchmarks equal-time --page -->\n"
END = "<!-- end of equal time -->\n"
_BASELINE = "baseline"
_NAMES = {
    "latent": "latent operator",
    "spectral": "spectral operator",
    "fno": "our FNO",
    "neuraloperator": "FNO of `neuraloperator`",
    "unet": "U-Net",
    LINEAR_MAP: "linear map",
    KERNEL_RIDGE: "kernel ridge",
}


@dataclass(frozen=True, kw_only=True)
class Error:
    """Error of rollouts on a test set."""

    mean: float
    """nRMSE, mean over conditions, parameters and frames."""
    standard_error: float
    """Standard error of that mean over the conditions."""
    median: float


class Cells:
    """Results on disk, by task, model and seed; several commands may share the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, *key: str) -> Any:
        """Return a cell, or None."""
        return self._read().get("/".join(key))

    def put(self, *key: str, value: Any) -> None:
        """Write a cell."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            written = self._path.with_suffix(".tmp")
            written.write_text(json.dumps({**self._read(), "/".join(key): value}, indent=1) + "\n")
            written.replace(self._path)

    def _read(self) -> dict[str, Any]:
        cells: dict[str, Any] = json.loads(self._path.read_text()) if self._path.exists() else {}
        return cells


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "--cells",
        default="build/equal-time/cells.json",
        help="equal-time: file of finished cells (%(default)s)",
    )
    parser.add_argument("--tasks", nargs="+", choices=list(CASES), help="equal-time: only these")
    parser.add_argument("--models", nargs="+", choices=list(SPACES), help="equal-time: only these")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="equal-time: number of data seeds")
    parser.add_argument("--page", help="equal-time: the page whose table is replaced, docs/evaluation.md")
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="equal-time: where (%(default)s)"
    )


def run(options: argparse.Namespace) -> None:
    """Compute all cells that are missing, the first seed of every task first, and print the table."""
    torch.set_num_threads(1)
    cells, device = Cells(Path(options.cells)), torch.device(options.device)
    models = [model for model in options.models or SPACES if model != "neuraloperator" or _has_neuralop()]
    folder = Path(options.cells).parent / "data"
    reader = partial(load, folder=folder, device=device)
    for seed in SEEDS[: options.seeds]:
        for task in options.tasks or CASES:
            tune(cells, task, models, reader)
            compute(cells, task, models, seed, reader)
            print(f"{task}, seed {seed}: done", flush=True)
    rows = "\n".join(table(cells)) + "\n"
    print(rows)
    if options.page:
        write(Path(options.page), rows)


def write(page: Path, rows: str) -> None:
    """Replace the page's table."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}{rows}{END}{after}")


def _has_neuralop() -> bool:
    return find_spec("neuralop") is not None


def tune(cells: Cells, task: str, models: Sequence[str], reader: Any) -> None:
    """Search the best candidate of each model, unless it is known."""
    missing = [model for model in models if cells.get(task, model, "best") is None]
    if not missing:
        return
    sets: Sets = reader(task, TUNING_SEED, with_test=False)
    for model in missing:
        trials = list(search(sets.task, sets.held_out, candidates(model, TRIED), FIRST_S))
        for trial in trials:
            print(
                f"{task}: {model}: {trial.candidate}: {trial.error:.4f} after {trial.seconds:g} s", flush=True
            )
        cells.put(task, model, "tried", value=[[str(t.candidate), t.seconds, t.error] for t in trials])
        cells.put(task, model, "best", value=asdict(trials[-1].candidate))


def compute(cells: Cells, task: str, models: Sequence[str], seed: int, reader: Any) -> None:
    """Fit the baseline and train each model, unless its cell is known."""
    missing = [model for model in (_BASELINE, *models) if not _is_whole(cells.get(task, model, str(seed)))]
    if not missing:
        return
    sets: Sets = reader(task, seed)
    for model in missing:
        if model == _BASELINE:
            cells.put(task, model, str(seed), value=_baseline(sets))
            continue
        for value in _train(sets, Candidate(**cells.get(task, model, "best")), seed):
            cells.put(task, model, str(seed), value=value)


def _is_whole(cell: Mapping[str, Any] | None) -> bool:
    """Tell whether a cell has all that it will have: a training that was killed has some marks only."""
    return cell is not None and (_key(MARKS[-1]) in cell["marks"] if "marks" in cell else True)


def _key(mark: float) -> str:
    return f"{mark:g}"


def _baseline(sets: Sets) -> dict[str, Any]:
    train = sets.task.train
    parameters = train.conditions.unique(dim=0)
    fitted = fit_baseline(sets.task, parameters, train.conditions.device, lambda: None)

    def predict(u: Tensor, conditions: Tensor) -> Tensor:
        return fitted.predict(u, torch.cdist(conditions, parameters).argmin(dim=1))

    name = KERNEL_RIDGE if train.steady else LINEAR_MAP
    return {"name": name, **_scores(predict, sets, unseen=True)}


def _train(sets: Sets, candidate: Candidate, seed: int) -> Iterator[dict[str, Any]]:
    """Train a candidate, and yield its cell after each mark."""
    racer, marks = Racer(sets.task, candidate, seed), {}
    for mark in MARKS:
        racer.train_until(mark, MARKS[-1])
        with racer.averaged():
            scores = _scores(racer.operator, sets, unseen=mark == MARKS[-1])
        marks[_key(mark)] = {"steps": racer.steps, **scores}
        print(f"{candidate.model}, {mark:g} s: {scores['test']['mean']:.4f}", flush=True)
        yield {"parameters": racer.parameters, "marks": marks}


def _scores(predict: Any, sets: Sets, *, unseen: bool) -> dict[str, Any]:
    scores = {"test": asdict(error_of(rollout_errors(predict, sets.test), sets.conditions))}
    if unseen and sets.unseen is not None:
        scores["unseen"] = asdict(error_of(rollout_errors(predict, sets.unseen), sets.conditions))
    return scores


def error_of(errors: Tensor, conditions: int) -> Error:
    """Return the error over (N, T), where N are the conditions at one parameter, then at the next."""
    by_condition = errors.double().mean(dim=1).unflatten(0, (-1, conditions)).mean(dim=0)
    return Error(
        mean=by_condition.mean().item(),
        standard_error=by_condition.std().item() / math.sqrt(conditions),
        median=errors.median().item(),
    )


def table(cells: Cells) -> list[str]:
    """Return the rows of all cells that are known."""
    titles = ["task", "model", "seeds", *(f"{mark:g} s" for mark in MARKS), "median", "unseen", "tuned to"]
    rows = [titles, ["---"] * len(titles)]
    for task in CASES:
        rows += [row for model in (_BASELINE, *SPACES) if (row := _row(cells, task, model))]
    return [f"| {' | '.join(row)} |" for row in rows]


def _row(cells: Cells, task: str, model: str) -> list[str]:
    known = [cell for seed in SEEDS if (cell := cells.get(task, model, str(seed)))]
    if not known:
        return []
    if model == _BASELINE:
        shown = [_shown([cell["test"] for cell in known]), "", ""]
        name, last, tuned = _NAMES[known[0]["name"]], known, ""
    else:
        marks = [[found for cell in known if (found := cell["marks"].get(_key(mark)))] for mark in MARKS]
        shown, last = [_shown([found["test"] for found in each]) for each in marks], marks[-1]
        name, tuned = _NAMES[model], str(Candidate(**cells.get(task, model, "best")))
    unseen = _shown([cell["unseen"] for cell in last if "unseen" in cell])
    median = f"{statistics.mean(cell['test']['median'] for cell in last):.4f}" if last else "-"
    return [task, name, str(len(known)), *shown, median, unseen, tuned]


def _shown(errors: Sequence[Mapping[str, float]]) -> str:
    """Return the mean over seeds and its standard error from the test conditions of all of them."""
    if not errors:
        return "-"
    squares = sum(error["standard_error"] ** 2 for error in errors)
    return (
        f"{statistics.mean(error['mean'] for error in errors):.4f} ± {math.sqrt(squares) / len(errors):.4f}"
    )
