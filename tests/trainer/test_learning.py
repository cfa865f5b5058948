"""It learns: the shipped job of two tasks, in fewer steps, beside what is reached without having learned."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.trainer.conftest import SMALL, Box, RunningRanks
from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.launcher.package_files import configs_dir
from vastrun.trainer import data
from vastrun.trainer.job.config import config_of
from vastrun.trainer.job.scores import lowest_floor

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]

TASKS = ("advection", "darcy")
FITTED = ("linear_map", "interpolation", "solver")


@pytest.fixture
def box(tmp_path: Path, request: pytest.FixtureRequest) -> Box:
    """A box with the job of two tasks for so many steps, and its data."""
    changes = (f"train.steps={request.param}", "train.batch=16", "train.wandb.mode=off", "train.plots=false")
    from vastrun.launcher.config.job_loader import load_job  # needs packages that some environments lack

    spec = load_job((configs_dir() / "learn_2task.yaml").read_text(), "job", changes)
    assert spec.train is not None
    box = Box(tmp_path / "box", **asdict(spec.train))
    for task in spec.train.data:
        data.generate(task, box.path / layout.DATA)
    return box


def scores(box: Box) -> dict[str, dict[str, float]]:
    """By task, of a training on one rank until its end."""
    running = RunningRanks(box, 1)
    assert running.wait(within_s=500) == [0], box.log(0)
    found = box.json(layout.FINAL)["scores"]
    return {
        task: {name.removeprefix(f"{task}."): found[name] for name in found if name.startswith(f"{task}.")}
        for task in TASKS
    }


def share_of_floor(scores: dict[str, float]) -> float:
    """The error of a rollout, over the lowest one that is reached without having learned.

    What was fitted has learned, too: a linear map solves advection.
    """
    floor = lowest_floor({name: value for name, value in scores.items() if not name.startswith(FITTED)})
    assert floor is not None
    return scores["rollout_nrmse"] / floor.value


@pytest.mark.slow
@pytest.mark.parametrize("box", [60], indirect=True)
def test_sixty_steps_begin_to_learn_and_their_checkpoint_scores_the_same_to_the_last_bit(box: Box) -> None:
    trained = scores(box)
    assert trained["advection"]["rollout_nrmse"] < 0.95
    assert trained["darcy"]["rollout_nrmse"] < 0.35
    loaded = scores(box)
    assert "resumes after step 60" in box.log(0)
    assert loaded == trained


@pytest.mark.slow
@pytest.mark.parametrize("box", [400], indirect=True)
def test_four_hundred_steps_learn_both_tasks(box: Box) -> None:
    learned = scores(box)
    assert max(share_of_floor(learned[task]) for task in TASKS) < 0.2, learned


@pytest.mark.slow
@pytest.mark.parametrize("held_out", [0, 8])
def test_a_training_never_ends_worse_than_it_began(tmp_path: Path, held_out: int) -> None:
    """With a rate of 1 the weights are lost, and one of 1e-12 leaves the fitted map as it began."""
    errors, logs = {}, {}
    for rate in (1e-12, 1.0):
        box = Box(
            tmp_path / f"{rate:g}",
            data=SMALL["data"] | {"validation": held_out},
            model={"name": "spectral", "dim": 8, "depth": 1, "modes": 4, "points": 16},
            evaluate_every=10 if held_out else None,
            optim={"lr": rate},
        )
        data.generate(config_of(Job.read(box.path)).data[0], box.path / layout.DATA)
        assert RunningRanks(box, 2).wait() == [0, 0], box.log(0)
        errors[rate], logs[rate] = [box.json(layout.FINAL)["scores"]["rollout_nrmse"]], box.log(0)
        points = map(json.loads, (box.path / layout.METRICS).read_text().splitlines())
        errors[rate] += [point["validation_nrmse"] for point in points if point.get("validation_nrmse")][-1:]
    assert len(errors[1.0]) == (2 if held_out else 1)
    assert errors[1.0] == pytest.approx(errors[1e-12], rel=1e-3), errors
    assert "the fitted linear map alone is better than the trained model: " in logs[1.0]
    assert f"on {held_out or 32} trajectories" in logs[1.0]
