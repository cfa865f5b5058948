"""The score in words: beside the lowest floor, task by task, and plainly said where it is no better."""

from __future__ import annotations

from trainer.contract.scores import Floor, beside, lines_of

FLOORS = {"persistence_nrmse": 0.93, "spatial_mean_nrmse": 0.7, "training_mean_nrmse": 1.0}


def test_a_score_stands_beside_the_lowest_of_its_floors() -> None:
    assert lines_of({"rollout_nrmse": 0.07, "one_step_nrmse": 0.01, **FLOORS}) == [
        "rollout nRMSE 0.07, 10.0x better than the mean over space (0.7)"
    ]
    [line] = lines_of({"rollout_nrmse": 0.07, "blind_nrmse": 0.35, **FLOORS})
    assert line.endswith("; without the sample's parameter: 0.35")


def test_a_score_above_its_floor_is_never_called_better() -> None:
    assert beside(0.8, Floor(name="persistence", value=0.7)) == "0.8, NO better than persistence (0.7)"
    assert beside(0.0, Floor(name="persistence", value=0.7)).startswith("0, infinitely better")
    assert lines_of({"rollout_diverged": 3, **FLOORS}) == [
        "rollout nRMSE is infinite, 3 rollouts ran away; the mean over space has 0.7"
    ]


def test_several_tasks_have_a_line_each_and_foreign_scores_one_for_all() -> None:
    scores = {f"a.{name}": value for name, value in FLOORS.items()}
    scores |= {"a.rollout_nrmse": 0.1, "b.rollout_nrmse": 0.2, "b.training_mean_nrmse": 0.4}
    assert lines_of(scores) == [
        "a: rollout nRMSE 0.1, 7.0x better than the mean over space (0.7)",
        "b: rollout nRMSE 0.2, 2.0x better than the training mean (0.4)",
    ]
    assert lines_of({"loss": 0.5, "accuracy": 0.75}) == ["accuracy 0.75, loss 0.5"]
    assert lines_of({}) == []
