"""The errors that our operators and their rivals come to in equal time of one core.

    python -m benchmarks.equal_time                     # computes the cells that are missing
    python -m benchmarks.equal_time --again burgers fno 60 2024    # computes a cell once more, beside its row

Every model is tuned for each task on data that no other cell has: the same number of candidates, drawn from
the model's space, and the same time. Then it is trained for each seed, of data and weights, and each mark of
time, from new weights and with a schedule that ends there. The time is that of the process. `make schemas`
writes the tables of docs/evaluation.md from the cells alone.
"""

import argparse
import json
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from benchmarks import race
from benchmarks.machine import commit, processor
from benchmarks.race import Candidate, Errors, Racer, errors, search
from benchmarks.rivals import SHARED, SPACES, TASKS, Sets, candidates, load
from vastrun.contract.scores import FLOORS
from vastrun.trainer.evaluation import predictors

ROOT = Path(__file__).parents[1]
CELLS = ROOT / "docs" / "assets" / "equal-time.jsonl"
BEGIN, END = "<!-- from docs/assets/equal-time.jsonl -->\n", "<!-- end of the table -->\n"
MARKS = (15, 60)
"""Seconds of the trainings."""
SEEDS = (2022, 2023, 2024, 2025, 2026)
"""Of the data; the weights of a training have the seed's last two digits."""
_TRIED, _FIRST_S = 8, 4.0
_NAMES = {
    "latent": "latent",
    "spectral": "spectral",
    "fno": "FNO",
    "unets:UNet": "U-Net",
    "unets:CNextUNet": "CNextU-Net",
    "unets:WarpUNet": "warping U-Net",
    "transformer:Transformer": "transformer",
}
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.equal_time")
    parser.add_argument("--cells", type=Path, default=CELLS, help="file of cells (%(default)s)")
    parser.add_argument("--data", type=Path, default=ROOT / "build" / "equal-time", help="folder of data")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--models", nargs="+", choices=SPACES, default=list(SPACES))
    parser.add_argument("--again", nargs=4, metavar=("TASK", "MODEL", "SECONDS", "SEED"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    reader = partial(load, folder=options.data, device=torch.device("cpu"))
    if options.again:
        task, model, seconds, seed = options.again
        key = {"task": task, "model": model, "seconds": int(seconds), "data_seed": int(seed)}
        [row] = _of(read(options.cells), "training", **key)
        anew = _training(reader(task, seed=int(seed)), row, Candidate(**row["candidate"]))
        print(f"recorded {row['test']}\nagain    {anew['test']}")
        return
    for key in _keys(options):
        rows = read(options.cells)  # each time anew: several commands may share the file
        if not any(_of(rows, **key)):
            row = {**key, **_computed(rows, key, reader), "commit": commit(), "processor": processor()}
            with options.cells.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print({name: row[name] for name in (*key, "test", "best") if name in row}, flush=True)


def read(path: Path) -> list[Row]:
    """Return the cells of a file; none when there is no file yet."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _keys(options: argparse.Namespace) -> Iterator[Row]:
    """Yield the keys of all cells that are asked for, the longest trainings first, a seed after the other."""
    each = [{"task": task, "model": model} for task in options.tasks for model in options.models]
    yield from ({"kind": "tuning", **key} for key in each)
    for mark, seed in product(reversed(MARKS), SEEDS):
        yield from ({"kind": "floors", "task": task, "data_seed": seed} for task in options.tasks)
        yield from ({"kind": "training", **key, "seconds": mark, "data_seed": seed} for key in each)


def _of(rows: Sequence[Row], kind: str, **key: Any) -> Iterator[Row]:
    """Yield the rows with this key."""
    wanted = {"kind": kind, **key}.items()
    yield from (row for row in rows if wanted <= {name: row.get(name) for name in (*key, "kind")}.items())


def _computed(rows: Sequence[Row], key: Row, reader: Any) -> Row:
    task = key["task"]
    if key["kind"] == "tuning":
        return _tuning(reader(task), task, key["model"])
    sets = reader(task, seed=key["data_seed"])
    if key["kind"] == "floors":
        return _floors(sets)
    [tuned] = _of(rows, "tuning", task=task, model=key["model"])
    return _training(sets, key, Candidate(**tuned["best"]))


def _tuning(sets: Sets, task: str, model: str) -> Row:
    """Search the best candidate."""
    trials = list(search(sets.task, sets.held_out, candidates(task, model, _TRIED), _FIRST_S))
    tried = [[asdict(candidate), seconds, _number(error)] for candidate, seconds, error in trials]
    return {"space": {**SHARED, **SPACES[model]}, "tried": tried, "best": tried[-1][0], **_data(sets)}


def _training(sets: Sets, key: Row, candidate: Candidate) -> Row:
    """Train a candidate, and roll it out."""
    weight_seed = key["data_seed"] % 100
    racer = Racer(sets.task, candidate, weight_seed)
    racer.train_until(key["seconds"], key["seconds"])
    return {
        "weight_seed": weight_seed,
        "candidate": asdict(candidate),
        "model_options": asdict(candidate.config(race.domain_of(sets.task.train))),
        "training": {**asdict(candidate.optim), **race.TRAINING},
        "steps": racer.steps,
        "parameters": sum(each.numel() for each in racer.operator.parameters()),
        **{part: _scores(racer.errors(test)) for part, test in sets.tests.items()},
        **_data(sets),
    }


def _floors(sets: Sets) -> Row:
    """Return what is reached without a network."""
    prior = predictors.compute_prior(sets.task, torch.device("cpu"))
    prior = predictors.with_baseline(prior, sets.task, lambda: None)
    prior = predictors.with_rollouts(prior, sets.task, sets.config, lambda: None)
    known = dict(prior.rollouts)
    if prior.linear_map is not None:
        frames = sets.held_out.frames - 1
        known = {"linear_map": partial(race.roll_out, prior.mapped, frames), **known}
    found = {
        name: {part: _scores(errors(predict, test)) for part, test in sets.tests.items()}
        for name, predict in known.items()
    }
    return {"floors": found, **_data(sets)}


def _data(sets: Sets) -> Row:
    """Return the options of the training set that are not the defaults."""
    config, usual = sets.config, type(sets.config)()
    names = [each.name for each in fields(config)]
    return {
        "data": {name: value for name in names if (value := getattr(config, name)) != getattr(usual, name)}
    }


def _scores(found: Errors) -> dict[str, float | None]:
    return {
        "nrmse": _number(found.nrmse.mean().item()),
        "nrmse_median": _number(found.nrmse.median().item()),
        "vrmse": _number(found.vrmse.mean().item()),
        "ms": _number(found.ms),
    }


def _number(value: float) -> float | None:
    """Return four digits; None for what is not finite."""
    return float(f"{value:.4g}") if math.isfinite(value) else None


def written(page: str) -> str:
    """Return the page with the tables as the cells say."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + "\n".join(lines(read(CELLS))) + "\n" + END + rest.partition(END)[2]


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of the page: a table for each task, then the spaces."""
    marks = [mark for mark in MARKS if any(_of(rows, "training", seconds=mark))]
    for task in TASKS:
        known = list(_of(rows, "floors", task=task))
        titles = [*(f"{mark} s" for mark in marks), "VRMSE", "unseen", "ms", "steps", "parameters"]
        yield f"\n{_line(task, 'seeds', *titles, 'tuned to')}"
        yield "|---|--:|" + "--:|" * len(titles) + "---|"
        for name in known[0]["floors"] if known else ():
            floors = [row["floors"][name] for row in known]
            cells = [_shown(floors, "test"), _shown(floors, "test", "vrmse"), _shown(floors, "unseen")]
            yield _line(FLOORS[name], len(floors), *[""] * (len(marks) - 1), *cells, _ms(floors), "", "", "")
        for model, name in _NAMES.items():
            by_mark = [list(_of(rows, "training", task=task, model=model, seconds=mark)) for mark in marks]
            if not (last := by_mark[-1]):
                continue
            cells = [*(_shown(each, "test") for each in by_mark), _shown(last, "test", "vrmse")]
            steps = round(statistics.mean(row["steps"] for row in last))
            told = [_ms(last), steps, f"{last[0]['parameters']:,}", Candidate(**last[0]["candidate"])]
            yield _line(name, len(last), *cells, _shown(last, "unseen"), *told)
    tried = {len(row["tried"]) for row in _of(rows, "tuning")}
    yield f"\nTuned among {', '.join(map(str, tried))} candidates of each model, drawn from these values:\n"
    yield "| model | values |\n|---|---|"
    for model, name in _NAMES.items():
        if tuning := next(_of(rows, "tuning", model=model), None):
            yield _line(
                name, "; ".join(f"{key} {', '.join(map(str, of))}" for key, of in tuning["space"].items())
            )
    places = Counter((row["processor"], row["commit"]) for row in rows)
    told = (f"{count} on {where}, commit `{code}`" for (where, code), count in sorted(places.items()))
    yield f"\nCells: {'; '.join(told)}.\n"


def _line(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _shown(rows: Sequence[Mapping[str, Any]], part: str, score: str = "nrmse") -> str:
    """Return the mean over seeds, and their deviation."""
    values = [math.inf if row[part][score] is None else row[part][score] for row in rows if part in row]
    if not values:
        return "-"
    if not all(map(math.isfinite, values)):
        return f"diverged, {sum(map(math.isinf, values))} of {len(values)}"
    mean = statistics.mean(values)
    digits = max(0, 2 - math.floor(math.log10(mean)))
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean:.{digits}f}{spread}"


def _ms(rows: Sequence[Mapping[str, Any]]) -> str:
    return f"{statistics.median(row['test']['ms'] for row in rows):.2g}"


if __name__ == "__main__":
    main()
