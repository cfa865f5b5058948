"""The stage to train follows from the newest checkpoint and the results so far, on any machine."""

from typing import Any

import pytest

from vastrun.contract.program import StageRecord, spans_of
from vastrun.trainer.checkpoints import TrainerState
from vastrun.trainer.engine.current_stage import stage_to_train

pytestmark = pytest.mark.torch

SPANS = spans_of([("operator", 10), ("refine", 6), ("distill", 4)])
RECORDS = tuple(
    StageRecord(stage=span.name, first_step=span.first_step, steps=span.steps, scores={}, run_id="calm-heron")
    for span in SPANS
)


def saved(stage: str, step: int, first_step: int) -> TrainerState:
    made_by: dict[str, Any] = {}
    return TrainerState(
        step=step,
        first_step=first_step,
        samples=0,
        loss=None,
        config={"stage": stage},
        made_by=made_by,
        scaler={},
    )


@pytest.mark.parametrize(
    ("state", "results", "expected"),
    [
        (None, 0, "operator"),
        (saved("operator", 4, 0), 0, "operator"),
        (saved("operator", 10, 0), 0, "operator"),  # trained, but without scores
        (saved("operator", 10, 0), 1, "refine"),
        (saved("operator", 8, 0), 1, "operator"),  # the checkpoint of its end is damaged
        (saved("refine", 12, 10), 1, "refine"),
        (saved("refine", 16, 10), 1, "refine"),
        (saved("refine", 16, 10), 2, "distill"),
        (saved("distill", 20, 16), 3, "distill"),
        # Of a run of that stage alone, whose steps count from 0.
        (saved("refine", 6, 0), 2, "distill"),
        # Of a stage that is not trained here: the first one starts from it.
        (saved("steady", 6, 0), 0, "operator"),
    ],
)
def test_a_stage_is_over_with_all_of_its_steps_and_its_scores(
    state: TrainerState | None, results: int, expected: str
) -> None:
    assert stage_to_train(SPANS, state, RECORDS[:results]).name == expected
