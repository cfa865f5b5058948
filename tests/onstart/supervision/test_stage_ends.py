"""What the supervisor says of the stages of a run: how far each came, and which gate was missed."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.onstart.supervision.concluding import started, training
from vastrun.contract import layout
from vastrun.contract.outcome import Reason, StartRecord
from vastrun.onstart.supervision.diagnosis import Diagnosis
from vastrun.onstart.supervision.evidence import stage_ends, stage_of, with_gate

STAGES: dict[str, Any] = {"stages": ["operator", "refine"], "steps": 6}
FINISHED = Diagnosis(reason="finished", detail="all 2 ranks exited 0", ranks=(), first_failure=None)
SCORES = {"rollout_nrmse": 0.3, "persistence_nrmse": 0.9}
OPERATOR = {
    "stage": "operator",
    "first_step": 0,
    "steps": 6,
    "loss": 0.1,
    "scores": SCORES,
    "run_id": "heron",
}


def write(box: Path, name: str, value: Any) -> None:
    (box / name).parent.mkdir(parents=True, exist_ok=True)
    (box / name).write_text(json.dumps(value))


def trained(stage: str | None, seconds: float, steps_done: int, reason: Reason = "finished") -> StartRecord:
    return started(reason, stage=stage, steps_done=steps_done, ended_at=1.0 + seconds)


def test_a_finished_stage_has_its_scores_and_one_that_goes_on_its_steps(tmp_path: Path) -> None:
    write(tmp_path, layout.STAGES, [OPERATOR])
    starts = (
        trained("operator", 5, 4, "signal"),
        trained("operator", 7, 6),
        trained("refine", 3, 8, "signal"),
        trained(None, 9, 0, "error"),
    )

    operator, refine = stage_ends(tmp_path, training(train=STAGES), starts)

    assert (operator.steps_done, operator.seconds, operator.scores) == (6, 12.0, SCORES)
    assert (operator.run_id, operator.missed) == ("heron", None)
    assert (refine.steps_done, refine.steps_planned, refine.seconds) == (2, 6, 3.0)
    assert (refine.run_id, refine.scores) == (None, None)


def test_a_job_of_a_single_stage_has_no_stages(tmp_path: Path) -> None:
    assert stage_ends(tmp_path, training(), (trained(None, 5, 6),)) == ()
    assert stage_ends(tmp_path, training(train={"stages": ["operator"]}), (trained(None, 5, 6),)) == ()


@pytest.mark.parametrize("text", ["", "no json", '{"stage": 3}', "[]", '[{"stage": "operator"}]'])
def test_a_file_that_is_malformed_says_nothing(text: str, tmp_path: Path) -> None:
    for name in (layout.STAGE, layout.STAGES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert stage_of(tmp_path) is None
    assert [end.steps_done for end in stage_ends(tmp_path, training(train=STAGES), ())] == [0, 0]


@pytest.mark.parametrize(
    ("missed", "detail"),
    [(None, None), ("rollout_nrmse is 0.3", "stage operator missed its gate: rollout_nrmse is 0.3")],
)
def test_scores_that_miss_a_gate_fail(missed: str | None, detail: str | None, tmp_path: Path) -> None:
    final = {"step": 6, "loss": 0.1, "stage": "operator", "scores": SCORES, "missed": missed}
    write(tmp_path, layout.FINAL, final)
    found = with_gate(tmp_path, FINISHED)
    if detail is None:
        assert found == FINISHED
    else:
        assert (found.reason, found.detail) == ("gate_missed", detail)


def test_a_finished_stage_says_which_gate_it_missed(tmp_path: Path) -> None:
    write(tmp_path, layout.STAGES, [{**OPERATOR, "missed": "rollout_nrmse is 0.3"}])
    operator, _ = stage_ends(tmp_path, training(train=STAGES), ())
    assert operator.missed == "rollout_nrmse is 0.3"
