"""Each of several stages has a proof: its steps, its gate and its run."""

from dataclasses import replace

import pytest

from tests.jobs import train_job
from tests.launcher.decisions.outcomes import GOOD, evidence
from vastrun.contract.outcome import StageEnd
from vastrun.contract.records import read_as
from vastrun.launcher.core import Cause
from vastrun.launcher.decisions.run_assessment import assess_run
from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.job.stage_config import GateConfig

STAGES = ("operator", "refine")
TWO_STAGES = replace(
    train_job(),
    train=read_as(TrainConfig, {"stages": [*STAGES], "steps": 6, "stage_options": {"refine": {"steps": 4}}}),
)
OPERATOR = StageEnd(name="operator", steps_done=6, steps_planned=6, scores={}, run_id="calm-heron-3f1a")
REFINE = StageEnd(name="refine", steps_done=4, steps_planned=4, scores={}, run_id="calm-heron-3f1b")


def test_a_run_of_several_stages_has_a_proof_for_each() -> None:
    assessment = assess_run(evidence(replace(GOOD, stages=(OPERATOR, REFINE))), TWO_STAGES)
    assert assessment.cause is None
    assert [(proof.name, proof.holds) for proof in assessment.proofs if proof.name.startswith("stage")] == [
        ("stage.operator", True),
        ("stage.refine", True),
    ]
    assert "gate" not in "".join(proof.text for proof in assessment.proofs)


def test_a_gate_that_passed_is_named_with_its_stage() -> None:
    train = TWO_STAGES.train
    assert train is not None
    gated = replace(TWO_STAGES, train=replace(train, gate=GateConfig(rollout_nrmse=0.5)))
    texts = [
        proof.text for proof in assess_run(evidence(replace(GOOD, stages=(OPERATOR, REFINE))), gated).proofs
    ]
    assert "6 of 6 steps; it was scored, its gate passed" in texts


@pytest.mark.parametrize(
    ("stages", "cause"),
    [
        ((OPERATOR,), Cause.UNPROVEN),
        ((), Cause.UNPROVEN),
        ((OPERATOR, replace(REFINE, run_id=None)), Cause.UNPROVEN),
        ((OPERATOR, replace(REFINE, steps_done=3)), Cause.CONTRADICTION),
        ((OPERATOR, replace(REFINE, missed="rollout_nrmse is 2")), Cause.CONTRADICTION),
    ],
)
def test_a_stage_without_its_end_is_no_success(stages: tuple[StageEnd, ...], cause: Cause) -> None:
    assert assess_run(evidence(replace(GOOD, stages=stages)), TWO_STAGES).cause is cause


def test_a_missed_gate_is_the_cause_and_later_stages_were_not_begun() -> None:
    missed = replace(OPERATOR, missed="rollout_nrmse is 0.3, the gate allows 0.2")
    outcome = replace(
        GOOD,
        reason="gate_missed",
        detail="stage operator missed its gate: rollout_nrmse is 0.3, the gate allows 0.2",
        steps_done=6,
        stages=(missed, replace(REFINE, steps_done=0, scores=None, run_id=None)),
    )

    assessment = assess_run(evidence(outcome), TWO_STAGES)

    assert (assessment.cause, assessment.detail) == (Cause.GATE_MISSED, outcome.detail)
    texts = {proof.name: (proof.holds, proof.text) for proof in assessment.proofs}
    assert texts["stage.operator"] == (False, f"6 of 6 steps; gate missed: {missed.missed}")
    assert texts["stage.refine"] == (None, "it was not started: 0 of 4 steps")
