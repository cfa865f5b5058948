"""The equal-time table: its cells are kept, its errors are those of conditions, its rivals can be built."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.equal_time import BEGIN, END, Cells, compute, error_of, table, tune, write
from benchmarks.equal_time_data import CASES, SEEDS, load
from benchmarks.race import Racer, rollout_errors, search
from benchmarks.rivals import SPACES, Candidate, candidates
from vastrun.trainer import data
from vastrun.trainer.data import Task
from vastrun.trainer.data.trajectories import Trajectories
from vastrun.trainer.job.data_config import DataConfig

pytestmark = pytest.mark.torch
SMALL = {
    "latent": Candidate(model="latent", optimiser="muon 0.01", batch=4, dim=16, depth=1, tokens=4),
    "fno": Candidate(model="fno", optimiser="adamw 0.01", batch=4, dim=8, depth=1, modes=4),
    "spectral": Candidate(
        model="spectral", optimiser="adamw 0.01", batch=4, dim=8, depth=1, modes=4, points=8
    ),
    "unet": Candidate(model="unet", optimiser="adamw 0.01", batch=4, dim=8, depth=2),
}


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    folder = tmp_path_factory.mktemp("data")
    config = DataConfig(task="advection", train=8, test=4, points=16, frames=5)
    data.generate(config, folder)
    return data.make_task(config, folder)


def cells_with(tmp_path: Path, **cells: Any) -> Cells:
    path = tmp_path / "cells.json"
    path.write_text(json.dumps({key.replace("__", "/"): value for key, value in cells.items()}))
    return Cells(path)


def never(*_: Any, **__: Any) -> Any:
    raise AssertionError("the data were read")


def test_a_finished_cell_is_not_computed_again(tmp_path: Path) -> None:
    cells = cells_with(tmp_path, burgers__fno__best={}, burgers__fno__2022={}, burgers__baseline__2022={})
    tune(cells, "burgers", ["fno"], never)
    compute(cells, "burgers", ["fno"], 2022, never)
    with pytest.raises(AssertionError, match="were read"):
        compute(cells, "burgers", ["fno"], 2023, never)


def test_a_training_that_was_killed_begins_again_and_shows_what_it_had(tmp_path: Path) -> None:
    error = {"mean": 0.2, "standard_error": 0.01, "median": 0.1}
    cell = {"parameters": 9, "marks": {"30": {"test": error, "steps": 7}}}
    best = asdict(SMALL["fno"])
    cells = cells_with(tmp_path, darcy__fno__best=best, darcy__fno__2022=cell, darcy__baseline__2022={})
    with pytest.raises(AssertionError, match="were read"):
        compute(cells, "darcy", ["fno"], 2022, never)
    cells = cells_with(tmp_path, darcy__fno__best=best, darcy__fno__2022=cell)
    assert [each.strip() for each in table(cells)[-1].split("|")][4:9] == [
        "0.2000 ± 0.0100",
        "-",
        "-",
        "-",
        "-",
    ]


def test_a_cell_is_on_disk_as_soon_as_it_is_known(tmp_path: Path) -> None:
    path = tmp_path / "new" / "cells.json"
    first, second = Cells(path), Cells(path)
    first.put("darcy", "fno", "2022", value={"parameters": 3})
    second.put("darcy", "fno", "2023", value={"parameters": 4})
    assert Cells(path).get("darcy", "fno", "2022") == {"parameters": 3}
    assert first.get("darcy", "fno", "2023") == {"parameters": 4}
    assert json.loads(path.read_text()).keys() == {"darcy/fno/2022", "darcy/fno/2023"}


def test_the_standard_error_is_that_of_the_conditions_and_not_of_their_frames_and_parameters() -> None:
    condition = torch.tensor([0.1, 0.2, 0.3, 0.6])
    errors = torch.cat([condition - 0.05, condition + 0.05])[:, None].expand(8, 20)
    found = error_of(errors, conditions=4)
    assert found.mean == pytest.approx(0.3)
    assert found.standard_error == pytest.approx(condition.double().std().item() / 2)


def test_the_table_has_the_mean_of_the_seeds_and_says_how_many_there_are(tmp_path: Path) -> None:
    def cell(mean: float) -> dict[str, Any]:
        error = {"mean": mean, "standard_error": 0.003, "median": mean / 2}
        return {"parameters": 9, "marks": {mark: {"test": error, "steps": 7} for mark in ("30", "60", "120")}}

    best = asdict(SMALL["fno"])
    cells = cells_with(
        tmp_path, darcy__fno__best=best, darcy__fno__2022=cell(0.1), darcy__fno__2023=cell(0.3)
    )
    *_, row = table(cells)
    spread = f"{0.003 / math.sqrt(2):.4f}"
    assert [each.strip() for each in row.strip("|").split("|")] == [
        "darcy",
        "our FNO",
        "2",
        *[f"0.2000 ± {spread}"] * 3,
        "0.1000",
        "-",
        "adamw 0.01, batch 4, dim 8, depth 1, modes 4",
    ]


def test_a_page_keeps_all_but_its_table(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}| old |\n{END}after\n")
    write(page, "| new |\n")
    assert page.read_text() == f"before\n{BEGIN}| new |\n{END}after\n"


@pytest.mark.parametrize("model", SPACES)
def test_the_candidates_of_a_model_are_always_the_same_and_differ_from_each_other(model: str) -> None:
    assert candidates(model, 6) == candidates(model, 6)
    assert len(set(candidates(model, 6))) == 6


@pytest.mark.parametrize("model", SMALL)
def test_a_rival_learns(task: Task, model: str) -> None:
    racer = Racer(task, SMALL[model], seed=0)
    persistence = rollout_errors(lambda u, _: u, task.test).mean()
    while racer.steps < 60:
        racer.train_until(racer.spent_s + 1e-9, 1e9)
    assert racer.errors(task.test).mean() < persistence


def test_a_search_leaves_half_of_the_candidates_in_each_round_and_names_the_best_last(task: Task) -> None:
    tried = [replace(SMALL["fno"], optimiser=f"adamw {rate}") for rate in (1e-3, 2e-3, 3e-3, 4e-3)]
    trials = list(search(task, task.test, tried, first_s=0.01))
    assert [trial.seconds for trial in trials] == [0.01, 0.01, 0.02, 0.04]
    assert trials[-1].error <= max(trial.error for trial in trials)


@pytest.mark.slow
def test_no_test_condition_is_in_a_training_set(tmp_path: Path) -> None:
    sets = load("advection", SEEDS[0], tmp_path, device=torch.device("cpu"))
    assert isinstance(sets.task.train, Trajectories) and sets.unseen is not None
    assert len(sets.task.train) == 512
    assert len(sets.test) == 2 * sets.conditions and len(sets.unseen) == sets.conditions
    trained = sets.task.train.conditions.unique(dim=0)
    assert torch.cdist(sets.test.conditions, trained).min(dim=1).values.max() < 1e-6
    assert torch.cdist(sets.unseen.conditions, trained).min() > 1e-3
    assert set(CASES) >= {"advection", "burgers", "darcy"}
