"""Stages of one run: their steps count on, a gate is met or missed, and wrong lists are found before it."""

from typing import Any

import pytest

from vastrun.contract.records import read_as
from vastrun.launcher.decisions.job_shape import stage_text
from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.job.config_checks import training_faults
from vastrun.trainer.job.stage_config import GateConfig, missed_gate

THREE = {"stages": ["operator", "refine", "distill"], "steps": 100}
OWN = {"refine": {"steps": 40, "unroll": 2, "optim": {"lr": 0.001}}, "distill": {"steps": 20}}
SCORES = {"rollout_nrmse": 0.2, "persistence_nrmse": 0.9, "stage_helps": 0.0, "operator_nrmse": 0.15}


def train(**settings: Any) -> TrainConfig:
    made: TrainConfig = read_as(TrainConfig, settings)
    return made


def test_the_steps_of_a_run_count_on_through_its_stages() -> None:
    config = train(**THREE, stage_options=OWN)
    assert [(span.name, span.first_step, span.end_step) for span in config.stage_spans] == [
        ("operator", 0, 100),
        ("refine", 100, 140),
        ("distill", 140, 160),
    ]
    assert config.total_steps == 160


def test_the_step_tells_the_stage() -> None:
    spans = train(**THREE, stage_options=OWN).stage_spans

    at = {step: stage_text(spans, step) for step in (0, 100, 101, 160, 999)}

    assert at == {
        0: "operator, stage 1 of 3",
        100: "operator, stage 1 of 3",
        101: "refine, stage 2 of 3",
        160: "distill, stage 3 of 3",
        999: "distill, stage 3 of 3",
    }
    assert stage_text(train(stage="refine").stage_spans, 5) == ""


def test_each_stage_is_trained_as_by_a_job_of_its_own() -> None:
    common = {"batch": 8, "optim": {"lr": 0.01, "warmup": 0.1}}
    config = train(**THREE, **common, stage_options=OWN, objective={"spectral": 1.0}, sampler={"steps": 2})
    refine = train(
        stage="refine", steps=40, unroll=2, batch=8, optim={"lr": 0.001, "warmup": 0.1}, sampler={"steps": 2}
    )
    assert config.of_stage("refine") == refine
    assert config.of_stage("operator") == train(
        steps=100, **common, objective={"spectral": 1.0}, model={"name": "latent"}
    )


def test_a_job_of_one_stage_has_its_own_steps() -> None:
    config = train(stage="refine", steps=40)
    assert (config.total_steps, config.first_stage, config.of_stage("refine")) == (40, "refine", config)


@pytest.mark.parametrize(
    ("gate", "stage", "scores", "fault"),
    [
        ({}, "operator", {}, None),
        ({"rollout_nrmse": 0.2}, "operator", SCORES, None),
        ({"rollout_nrmse": 0.1}, "operator", SCORES, "rollout_nrmse is 0.2, the gate allows 0.1"),
        ({"rollout_nrmse": 9.0}, "operator", {}, "rollout_nrmse is inf, the gate allows 9"),
        ({"beats_baselines": True}, "operator", SCORES, None),
        ({"beats_baselines": True}, "operator", {**SCORES, "persistence_nrmse": 0.2}, "persistence has 0.2"),
        ({"helps": True}, "operator", SCORES, None),
        ({"helps": True}, "refine", {**SCORES, "stage_helps": 1.0}, None),
        ({"helps": True}, "refine", SCORES, "refine does not help: rollout_nrmse is 0.2, the operator alone"),
        (
            {"rollout_nrmse": 0.5},
            "operator",
            {"darcy.rollout_nrmse": 0.4, "burgers.rollout_nrmse": 0.6},
            "burgers: rollout_nrmse is 0.6, the gate allows 0.5",
        ),
    ],
)
def test_a_gate_says_what_it_misses(
    gate: dict[str, Any], stage: str, scores: dict[str, float], fault: str | None
) -> None:
    missed = missed_gate(read_as(GateConfig, gate), stage, scores)
    assert missed is None if fault is None else fault in (missed or "")


@pytest.mark.parametrize(
    ("settings", "key", "text"),
    [
        ({"stages": ["operator", "operator"]}, "stages", "operator appears twice"),
        ({"stages": ["operator", "distill"]}, "stages", "expected refine directly before it, got operator"),
        ({"stages": ["refine", "operator"]}, "stages", "operator starts from nothing: expected it first"),
        ({**THREE, "stage": "refine"}, "stage", "has no effect with stages"),
        ({"stage_options": {"refine": {}}}, "stage_options.refine", "has no effect: it needs stages"),
        (
            {"stages": ["operator"], "stage_options": {"refine": {"steps": 3}}},
            "stage_options.refine",
            "refine is not one of the stages operator",
        ),
        ({"stages": ["operator"], "gate": {"helps": True}}, "gate.helps", "has no effect"),
        (
            {**THREE, "stage_options": {"operator": {"gate": {"helps": True}}}},
            "stage_options.operator.gate.helps",
            "has no effect",
        ),
        ({**THREE, "model": {"name": "fno"}}, "model.name", "expected latent with the stage refine, got fno"),
        (
            {"stages": ["operator", "steady"], "data": {"task": "burgers"}},
            "stages",
            "steady needs problems without time (darcy)",
        ),
        ({"stages": ["refine", "distill"], "noise": 0.2}, "noise", "has no effect in the stage refine"),
        ({"stages": ["operator"], "sampler": {"draws": 2}}, "sampler", "has no effect in the stage operator"),
        (
            {**THREE, "stage_options": {"refine": {"unroll": 30}}},
            "stage_options.refine.unroll",
            "expected less than data.frames (21), got 30",
        ),
        (
            {
                **THREE,
                "data": {"validation": 8},
                "evaluate_every": 50,
                "checkpoint_every": 50,
                "stage_options": {"refine": {"checkpoint_every": 40}},
            },
            "evaluate_every",
            "expected a divisor or a multiple of checkpoint_every (40), got 50",
        ),
        ({**THREE, "profile": {"step": 298}}, "profile.step", "at most train.steps (300)"),
    ],
)
def test_a_wrong_list_of_stages_is_a_fault_at_its_key(settings: dict[str, Any], key: str, text: str) -> None:
    faults = training_faults(train(**settings), 1)
    assert [found for found, _ in faults] == [key]
    assert text in faults[0][1]


def test_an_option_that_one_of_the_stages_reads_is_no_fault() -> None:
    read_by_some = {
        "noise": 0.02,
        "objective": {"spectral": 1.0},
        "sampler": {"steps": 2},
        "profile": {"step": 150},
    }
    assert training_faults(train(**THREE, **read_by_some, stage_options=OWN, gate={"helps": True}), 2) == []


def test_a_list_that_starts_from_weights_needs_a_checkpoint() -> None:
    assert train(stages=["refine", "distill"]).requires_checkpoint == "stages"
    assert train(**THREE).requires_checkpoint is None
    assert train(**THREE, freeze="codec").requires_checkpoint == "freeze"
