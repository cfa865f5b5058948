"""Parameters that are sampled from a range in training, and others that are tested on and not trained."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from vastrun.trainer import data
from vastrun.trainer.data.__main__ import check
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.engine.session_builder import domain_of
from vastrun.trainer.errors import DataError
from vastrun.trainer.evaluation import evaluate, final_scores
from vastrun.trainer.evaluation.evaluation import WHOLE
from vastrun.trainer.job.config import ModelConfig, TrainConfig
from vastrun.trainer.job.config_checks import faults_of
from vastrun.trainer.job.data_config import DataConfig
from vastrun.trainer.job.scores import score_lines
from vastrun.trainer.models import make

RANGE = DataConfig(
    ranges={"betas": (0.4, 1.0)},
    range_values=3,
    unseen={"betas": (0.5, 0.8)},
    train=6,
    test=4,
    points=16,
    frames=4,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("range")
    data.generate(RANGE, made)
    return made


def test_a_range_is_sampled_evenly_in_the_logarithm_and_has_both_its_ends() -> None:
    assert RANGE.parameters_of("advection") == ((0.4,), (0.6325,), (1.0,))
    assert RANGE.unseen_parameters_of("advection") == ((0.5,), (0.8,))
    two = DataConfig(task="compressible_2d", machs=(0.1, 1.0), unseen={"etas": (0.02,)})
    assert two.unseen_parameters_of(two.task) == ((0.1, 0.02), (1.0, 0.02))
    assert DataConfig().unseen_parameters_of("advection") == ()
    assert DataConfig(task="darcy", unseen={"betas": (0.5,)}).unseen_parameters_of("darcy") == ()


def test_each_value_of_a_range_has_initial_conditions_of_its_own(folder: Path) -> None:
    splits = data.splits(RANGE, folder)
    begin = splits.train.read(range(18))[:, 0].reshape(18, -1)
    assert len(np.unique(begin, axis=0)) == 18
    tested = splits.test.read(range(len(splits.test)))[:, 0].reshape(-1, begin.shape[1])
    assert {row.tobytes() for row in begin}.isdisjoint(row.tobytes() for row in tested)
    again = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.hdf5")}
    data.generate(RANGE, folder)
    assert {path.name: path.stat().st_mtime_ns for path in folder.glob("*.hdf5")} == again
    assert sorted(again) == [f"1D_Advection_Sols_beta{beta}.hdf5" for beta in (0.4, 0.5, 0.6325, 0.8, 1.0)]


@pytest.mark.parametrize("keep", ["device", "disk"])
def test_unseen_parameters_have_the_test_conditions_and_nothing_to_train_on(folder: Path, keep: str) -> None:
    task = data.make_task(replace(RANGE, keep=keep), folder)
    unseen = task.unseen  # type: ignore[attr-defined]
    assert (len(task.train), len(task.test), len(unseen)) == (18, 12, 8)
    assert unseen.conditions[:, 0].tolist() == pytest.approx([np.log10(0.5)] * 4 + [np.log10(0.8)] * 4)
    assert np.array_equal(unseen.fields[:4, 0], task.test.fields[:4, 0])


def test_a_check_reads_the_unseen_parameters(folder: Path) -> None:
    assert "  8 to test on at parameters that are not trained" in check(RANGE, folder, quick=True)
    with pytest.raises(DataError, match=r"beta0.7.hdf5: no such file"):
        check(replace(RANGE, unseen={"betas": (0.7,)}), folder, quick=True)


def test_scores_at_unseen_parameters_stand_beside_the_others(folder: Path, alone: Ranks) -> None:
    task = data.make_task(RANGE, folder)
    operator = make(ModelConfig(name="latent", dim=16, depth=1, heads=2, patch=4), [domain_of(task.train)])
    operator.scale(0).set(*task.train.moments())
    found = evaluate(operator, 0, RANGE, task, alone, lambda: None)
    unseen = [part for part in found.scores if part.startswith("unseen")]
    assert unseen == ["unseen", "unseen beta 0.5", "unseen beta 0.8"]
    rolled = {part: scores["rollout"].nrmse for part, scores in found.scores.items()}
    assert rolled["unseen"] == pytest.approx((rolled["unseen beta 0.5"] + rolled["unseen beta 0.8"]) / 2)
    scores = final_scores([found])
    assert (scores["rollout_nrmse"], scores["unseen_nrmse"]) == (rolled[WHOLE], rolled["unseen"])
    assert found.scores["unseen"].keys() == found.scores[WHOLE].keys()


def test_the_first_line_tells_the_error_at_unseen_parameters() -> None:
    scores = {
        "rollout_nrmse": 0.02,
        "persistence_nrmse": 0.9,
        "unseen_nrmse": 0.03,
        "unseen_persistence_nrmse": 0.9,
    }
    assert score_lines(scores) == [
        "rollout nRMSE 0.02, 45.0x better than persistence (0.9); at parameters that were not trained: 0.03, "
        "30.0x better than persistence (0.9)"
    ]


@pytest.mark.parametrize(
    ("settings", "keys"),
    [
        ({"ranges": {"betas": (0.4, 1.0)}, "unseen": {"betas": (0.7,)}}, []),
        ({"ranges": {"betas": (1.0, 0.4)}}, ["data.ranges.betas"]),
        ({"ranges": {"betas": (0.5, 0.5)}}, ["data.ranges.betas"]),
        ({"ranges": {"betas": (0.4, 0.5)}, "unseen": {"betas": (0.5,)}}, ["data.unseen"]),
        ({"ranges": {"nus": (0.4, 1.0)}}, ["data.ranges.nus"]),
        ({"ranges": {"betas": (0.4, 1.0)}, "betas": (0.5,)}, ["data.betas"]),
        ({"range_values": 4}, ["data.range_values"]),
        ({"unseen": {"betas": (0.4,)}}, ["data.unseen"]),
        ({"unseen": {"betas": ()}}, ["data.unseen.betas"]),
        ({"unseen": {"nus": (0.5,)}}, ["data.unseen.nus"]),
        ({"task": "darcy", "unseen": {"sources": (2.0,)}}, []),
        ({"task": "my.own:make", "unseen": {"betas": (0.5,)}}, ["data.unseen"]),
    ],
)
def test_senseless_ranges_and_unseen_values_are_refused(settings: dict[str, object], keys: list[str]) -> None:
    config = TrainConfig(data=(DataConfig(**settings),))  # type: ignore[arg-type]
    assert [key for key, _ in faults_of(config, 1)] == keys
