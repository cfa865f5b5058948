"""Which of several stages a run has reached, and what each of them cost."""

from dataclasses import replace

import pytest

from tests.jobs import command_job, train_job
from tests.runs import a_run
from vastrun.contract.outcome import StageEnd
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Phase, Run
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.job_shape import stage_costs, stage_end_steps, stage_name
from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.job.stage_config import StageConfig

STAGES = replace(
    train_job(),
    train=TrainConfig(
        steps=300, stages=("operator", "refine"), stage_options={"refine": StageConfig(steps=150)}
    ),
)


def run_of(spec: JobSpec, step: int = 0) -> Run:
    return a_run(spec_json=dump_job(spec), provider="fake", phase=Phase.TRAIN, step=step)


@pytest.mark.parametrize(
    ("step", "name"), [(0, "operator"), (300, "operator"), (301, "refine"), (450, "refine")]
)
def test_a_run_is_in_the_stage_of_its_last_step(step: int, name: str) -> None:
    assert stage_name(run_of(STAGES, step)) == name


def test_checkpoints_at_the_ends_of_stages_are_known_by_their_steps() -> None:
    assert stage_end_steps(run_of(STAGES)) == {300, 450}


@pytest.mark.parametrize("spec", [train_job(), command_job()], ids=["one stage", "a program"])
def test_a_job_without_several_stages_names_none(spec: JobSpec) -> None:
    run = run_of(spec, 7)
    assert (stage_name(run), stage_end_steps(run)) == ("", frozenset())
    assert stage_costs(run, [StageEnd(name="operator", steps_planned=300)], 1.0) == ()


def test_a_stage_costs_what_the_machines_cost_while_it_trained() -> None:
    ends = [StageEnd(name="operator", steps_planned=300, steps_done=300, seconds=1800.0)]
    first, second = stage_costs(run_of(STAGES, 300), ends, 2.0)
    assert (first.name, first.steps_done, first.usd) == ("operator", 300, pytest.approx(1.0))
    assert (second.name, second.steps_done, second.steps_planned, second.usd) == ("refine", 0, 150, 0.0)
