"""The errors that our operators and their rivals come to in equal time of one core.

    python -m benchmarks.equal_time                     # computes the cells that are missing
    python -m benchmarks.equal_time --again burgers fno 2024    # computes a cell once more, beside its row
    python -m benchmarks.equal_time --proof             # computes the floors once more, beside their rows

Every model is tuned for each task on data that no other cell has: the same number of candidates, drawn from
the model's space, and the same time. Then it is trained for each seed, of data and weights, from new weights
and with a schedule that ends with its time, which is that of the process. `make schemas` writes the tables of
docs/evaluation.md from the cells alone.
"""

import argparse
import json
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks import race
from benchmarks.machine import commit, processor
from benchmarks.race import Candidate, Errors, Racer, errors, search
from benchmarks.rivals import ALL, BY_HAND, REAL, SHARED, SOLVED, SPACES, TASKS, Sets, candidates, load
from vastrun.trainer.evaluation import predictors
from vastrun.trainer.job.scores import FLOORS

ROOT = Path(__file__).parents[1]
CELLS = ROOT / "docs" / "assets" / "equal-time.jsonl"
_BEGIN, _END = "<!-- {}, from docs/assets/equal-time.jsonl -->\n", "<!-- end of the table -->\n"
SECONDS, REAL_S = 60, 600
"""Seconds of a training, and of one on a grid as users have them."""
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
_FLOORS = {
    "nearest": "nearest",
    "interpolation": "interpolation",
    "linear_map": "linear map",
    "solver_half": "solver: half",
    "solver_quarter": "a quarter",
    "solver_eighth": "an eighth",
}
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.equal_time")
    parser.add_argument("--cells", type=Path, default=CELLS, help="file of cells (%(default)s)")
    parser.add_argument("--data", type=Path, default=ROOT / "build" / "equal-time", help="folder of data")
    parser.add_argument("--tasks", nargs="+", choices=ALL, default=list(ALL))
    parser.add_argument("--models", nargs="+", choices=SPACES, default=list(SPACES))
    parser.add_argument("--again", nargs=3, metavar=("TASK", "MODEL", "SEED"))
    parser.add_argument("--proof", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    reader, rows = partial(load, folder=options.data, device=torch.device("cpu")), read(options.cells)
    if options.proof:
        raise SystemExit(_differing_floors(rows, reader))
    if options.again:
        task, model, seed = options.again
        row = next(_of(rows, "training", task=task, model=model, data_seed=int(seed), by_hand=None))
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


def _differing_floors(rows: Sequence[Row], reader: Any) -> int:
    """Compute the floors of the first seed once more; return how many differ in two digits."""
    differing = 0
    for row in _of(rows, "floors", data_seed=SEEDS[0]):
        if row["task"] in REAL:
            continue
        for name, parts in _floors(reader(row["task"], seed=SEEDS[0]))["floors"].items():
            for part, scores in parts.items():
                then, now = row["floors"][name][part]["nrmse"], scores["nrmse"]
                differing += f"{then:.1e}" != f"{now:.1e}"
                print(f"{row['task']:20} {part:7} {name:15} {now:.2g}, recorded {then:.2g}", flush=True)
    return differing


def read(path: Path) -> list[Row]:
    """Return the cells of a file; none when there is no file yet."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _keys(options: argparse.Namespace) -> Iterator[Row]:
    """Yield the keys of all cells that are asked for, a seed after the other."""
    tasks = [task for task in TASKS if task in options.tasks]
    each = [{"task": task, "model": model} for task in tasks for model in options.models]
    yield from ({"kind": "tuning", **key} for key in each)
    for seed in SEEDS:
        yield from ({"kind": "floors", "task": task, "data_seed": seed} for task in tasks)
        timed = {"kind": "training", "seconds": SECONDS, "data_seed": seed, "by_hand": None}
        yield from ({**timed, **key} for key in each)
        yield from _by_hand(tasks, options.models, SECONDS, seed)
    others = [task for task in (*SOLVED, *REAL) if task in options.tasks]
    yield from ({"kind": "floors", "task": task, "data_seed": SEEDS[0]} for task in others)
    yield from _by_hand([task for task in others if task in REAL], options.models, REAL_S, SEEDS[0])


def _by_hand(tasks: Sequence[str], models: Sequence[str], seconds: int, seed: int) -> Iterator[Row]:
    for task in tasks:
        for one in BY_HAND.get(task, ()):
            if one.model in models:
                key = {"task": task, "model": one.model, "seconds": seconds, "data_seed": seed}
                yield {"kind": "training", **key, "by_hand": str(one)}


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
    if key["by_hand"]:
        [candidate] = (one for one in BY_HAND[task] if str(one) == key["by_hand"])
        return _training(sets, key, candidate)
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
    return {"floors": found, "one_parameter": prior.one_parameter, **_data(sets)}


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
    rows = read(CELLS)
    tables = {"floors": _floors_table(rows), "rivals": _rivals(rows), "sizes": _sizes(rows)}
    for name, lines in tables.items():
        before, begin, rest = page.partition(_BEGIN.format(name))
        page = before + begin + "\n".join(lines) + "\n" + _END + rest.partition(_END)[2]
    return page


def _floors_table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each task and part of its test set, of the first seed."""
    yield f"\n{_line('task', *_FLOORS.values())}\n|---|{'--:|' * len(_FLOORS)}"
    for task in (*TASKS, *SOLVED):
        for row in _of(rows, "floors", task=task, data_seed=SEEDS[0]):
            for part in next(iter(row["floors"].values())):
                usual = ", a one-parameter set" if row.get("one_parameter") else ""
                of = ", unseen" if part == "unseen" else usual
                found = (row["floors"].get(name, {}).get(part) for name in _FLOORS)
                yield _line(task + of, *("-" if one is None else _digits(one["nrmse"], 2) for one in found))
    yield ""


def _rivals(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of a table for each task, then the spaces."""
    for task in TASKS:
        yield from _table(rows, task, SECONDS)
    tried = {len(row["tried"]) for row in _of(rows, "tuning")}
    yield f"\nTuned among {', '.join(map(str, tried))} candidates of each model, drawn from these values:\n"
    yield "| model | values |\n|---|---|"
    for model, name in _NAMES.items():
        if tuning := next(_of(rows, "tuning", model=model), None):
            values = (f"{key} {', '.join(map(str, of))}" for key, of in tuning["space"].items())
            yield _line(name, "; ".join(values))
    places = Counter((row["processor"], row["commit"]) for row in rows)
    told = (f"{count} on {where}, commit `{code}`" for (where, code), count in sorted(places.items()))
    yield f"\nCells: {'; '.join(told)}.\n"


def _sizes(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of a table for each grid as users have them."""
    for task in REAL:
        yield from _table(rows, task, REAL_S)
    yield ""


def _table(rows: Sequence[Row], task: str, seconds: int) -> Iterator[str]:
    if not (known := list(_of(rows, "floors", task=task))):
        return
    titles = [f"{seconds} s", "VRMSE", "unseen", "ms", "steps", "parameters"]
    yield f"\n{_line(task, 'seeds', *titles, 'tuned to')}"
    yield "|---|--:|" + "--:|" * len(titles) + "---|"
    for name in known[0]["floors"]:
        floors = [row["floors"][name] for row in known]
        yield _line(FLOORS[name], len(floors), *_cells(floors), "", "", "")
    for model, name in _NAMES.items():
        trained = list(_of(rows, "training", task=task, model=model, seconds=seconds))
        for hand in dict.fromkeys(row.get("by_hand") for row in trained):
            found = [row for row in trained if row.get("by_hand") == hand]
            steps = round(statistics.mean(row["steps"] for row in found))
            told = [steps, f"{found[0]['parameters']:,}", Candidate(**found[0]["candidate"])]
            yield _line(f"{name}, by hand" if hand else name, len(found), *_cells(found), *told)


def _cells(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    ms = _digits(statistics.median(row["test"]["ms"] for row in rows), 2)
    return [_shown(rows, "test"), _shown(rows, "test", "vrmse"), _shown(rows, "unseen"), ms]


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
    shown = _digits(mean, 3)
    decimals = len(shown.partition(".")[2])
    return shown + (f" ± {statistics.stdev(values):.{decimals}f}" if len(values) > 1 else "")


def _digits(value: float, digits: int) -> str:
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(value)))}f}"


if __name__ == "__main__":
    main()
