"""What differs between two runs, and which runs did the same work at a job."""

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import pytest

from tests.jobs import command_job, train_job
from tests.runs import a_run
from vastrun.launcher.cli.report import differences_text
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Cause, Cost, Phase, Run
from vastrun.launcher.core.job import Code, JobSpec, Limits, NotifyUrl, Resources
from vastrun.launcher.core.runs import CodeFile, CodeRecord
from vastrun.launcher.decisions.comparison import (
    ComparedRun,
    Difference,
    chosen_values,
    differences,
    job_differences,
    job_values,
)
from vastrun.launcher.decisions.job_shape import shape_of, shape_prefilter, steps_of
from vastrun.trainer.job import config
from vastrun.trainer.job.data_config import DataConfig
from vastrun.trainer.job.stage_config import GateConfig, StageConfig, StageOptimConfig
from vastrun.trainer.job.workload import SAME_WORK

RUN = a_run(provider="vast", phase=Phase.ENDED, out_dir="/nowhere", host="m1", image="vastrun@sha256:aa")


def compared(run: Run = RUN, metrics: Mapping[str, float] | None = None, **changes: Any) -> ComparedRun:
    spec = replace(train_job(), **changes)
    return ComparedRun(
        run=run,
        spec=spec,
        cost=Cost(gpu_usd=1.0),
        usd_per_hour=run.usd_per_hour,
        seconds=10.0,
        metrics=metrics or {},
    )


def found(one: ComparedRun, other: ComparedRun) -> dict[tuple[str, str], Difference]:
    return {(each.section, each.key): each for each in differences(one, other)}


def test_each_part_is_compared() -> None:
    failed = replace(RUN, host="m2", image="vastrun@sha256:bb", cause=Cause.HOST)
    told = found(compared(metrics={"loss": 2.0, "lr": 1.0}), compared(failed, {"loss": 1.0}, ranks=4))
    assert {
        ("job", "ranks"),
        ("host", "host"),
        ("image", "image"),
        ("end", "cause"),
        ("end", "verdict"),
        ("metrics", "loss"),
        ("metrics", "lr"),
    } == {*told}
    assert told["metrics", "loss"].change == -0.5
    assert told["metrics", "lr"].other is None and told["metrics", "lr"].change is None
    assert told["host", "host"].change is None


def test_the_code_comes_first_file_by_file_then_the_packages() -> None:
    def one(sha256: str, torch: str) -> ComparedRun:
        files = {
            "train.py": CodeFile(mode="100644", sha256=sha256),
            "same.py": CodeFile(mode="100644", sha256="s"),
        }
        record = CodeRecord(digest=sha256, files=files)
        return replace(compared(), code=record, packages={"torch": torch, "numpy": "2.0"})

    told = differences(one("a", "2.11.0"), one("b", "2.13.0"))
    assert [(each.section, each.key) for each in told] == [("code", "train.py"), ("packages", "torch")]


def test_options_are_named_as_set_takes_them() -> None:
    spec = train_job()
    assert spec.train is not None
    other = replace(spec, train=replace(spec.train, optim=replace(spec.train.optim, lr=0.5)))
    assert [(each.key, each.other) for each in job_differences(spec, other)] == [("train.optim.lr", 0.5)]
    assert chosen_values(other)["train.optim.lr"] == 0.5
    assert set(chosen_values(JobSpec(name="x", command=("true",)))) == {"name", "command"}


def test_no_address_that_is_told_is_shown() -> None:
    spec = replace(train_job(), notify=(NotifyUrl(url="https://ntfy.sh/my-secret"),))
    assert "my-secret" not in repr(job_values(spec))
    assert "<secret>" in repr(job_values(spec))


def test_settings_are_told_one_by_one() -> None:
    metrics = {f"scores.{number}": 1.0 for number in range(40)}
    every = differences(compared(metrics=metrics), compared(metrics=dict.fromkeys(metrics, 2.0)))
    assert len(differences_text(RUN, RUN, every, None).splitlines()) == 41


JOB = train_job()
PROGRAM = command_job(code=Code(path="/home/me/lab"))


def trains(**changes: Any) -> JobSpec:
    """The job with another training."""
    assert JOB.train is not None
    return replace(JOB, train=replace(JOB.train, **changes))


@pytest.mark.parametrize(
    "other",
    [
        replace(JOB, name="another"),
        replace(JOB, limits=Limits(hours=9.0)),
        replace(JOB, retry={"host": 1}),
        replace(JOB, resources=Resources(gpus=4)),
        replace(JOB, ranks=2),
        trains(optim=config.OptimConfig(lr=0.1, clip=9.0, schedule="step")),
        trains(data=(DataConfig(seed=1, test=8),)),
    ],
    ids=["name", "limits", "retry", "GPUs", "ranks as GPUs", "lr", "data seed"],
)
def test_what_leaves_the_work_of_a_step_as_it_is_leaves_the_shape(other: JobSpec) -> None:
    assert shape_of(other) == shape_of(JOB)


@pytest.mark.parametrize(
    "changes",
    [{"optim": StageOptimConfig(lr=0.1)}, {"gate": GateConfig(helps=True)}, {"checkpoint_every": 7}],
    ids=["lr", "gate", "saves"],
)
def test_what_leaves_the_work_of_a_stage_as_it_is_leaves_the_shape(changes: dict[str, Any]) -> None:
    def in_stages(**options: Any) -> JobSpec:
        own = {"refine": StageConfig(steps=3, **options)}
        return trains(stages=("operator", "refine"), stage_options=own)

    assert shape_of(in_stages(**changes)) == shape_of(in_stages())
    assert shape_of(in_stages(unroll=4)) != shape_of(in_stages())


@pytest.mark.parametrize(
    "other",
    [
        trains(data=(DataConfig(task="burgers"),)),
        replace(JOB, ranks=1),
        replace(JOB, nodes=2),
        replace(JOB, env={"OMP_NUM_THREADS": "1"}),
        replace(JOB, resources=Resources(gpus=0), ranks=2),
        PROGRAM,
    ],
)
def test_what_makes_a_step_other_work_makes_another_shape(other: JobSpec) -> None:
    assert shape_of(other) != shape_of(JOB)


def test_weights_of_a_term_and_decays_that_are_there_are_the_same_work() -> None:
    assert shape_of(trains(objective=config.ObjectiveConfig(spectral=0.1))) == shape_of(
        trains(objective=config.ObjectiveConfig(spectral=0.7))
    )
    assert shape_of(trains(ema=0.9)) == shape_of(trains(ema=0.99))


def test_the_same_command_in_another_folder_is_another_program() -> None:
    assert shape_of(replace(PROGRAM, name="b")) == shape_of(PROGRAM)
    assert shape_of(replace(PROGRAM, code=Code(path="/home/me/other"))) != shape_of(PROGRAM)
    assert shape_of(replace(PROGRAM, command=("python", "train.py", "--dim", "9"))) != shape_of(PROGRAM)


OTHER_WORK: dict[str, Any] = {
    "stage": "refine",
    "stages": ("operator", "refine"),
    "stage_options": {"refine": StageConfig(steps=3)},
    "sampler": config.SamplerConfig(steps=2),
    "batch": 16,
    "turns": 2,
    "mixing": "proportional",
    "temperature": 3.0,
    "unroll": 1,
    "augment": False,
    "data": (DataConfig(frames=9),),
    "model": config.ModelConfig(depth=2),
    "objective": config.ObjectiveConfig(conservation=0.1),
    "freeze": "codec",
    "optim": config.OptimConfig(name="muon"),
    "strategy": "ddp",
    "fsdp2": config.Fsdp2Config(cpu_offload=True),
    "precision": "tf32",
    "deterministic": True,
    "compile": "whole",
    "cuda_graphs": True,
    "activation_checkpointing": "full",
    "remainder": "drop",
    "loader": config.LoaderConfig(workers=4),
    "check_every": 7,
    "micro_batch": 2,
    "out_of_memory": "fail",
    "ema": 0.5,
    "evaluate_every": 50,
    "threads": 4,
}
"""Every key that changes the work of a step, with a value that is not the usual one."""
LEFT_AS_IT_IS: dict[str, Any] = {
    "steps": 9,
    "gate": GateConfig(rollout_nrmse=0.1),
    "noise": 0.5,
    "seed": 7,
    "mlflow": config.MlflowConfig(mode="offline"),
    "wandb": config.WandbConfig(mode="off"),
    "tensorboard": True,
    "plots": False,
    "profile": config.ProfileConfig(),
    "log_every": 1,
    "checkpoint_every": 5,
    "keep_checkpoints": 9,
    "keep_best": False,
    "limits": config.ActivityLimits(eval_s=9.0),
}
"""Every key that leaves it as it is."""


def test_every_key_of_a_training_was_thought_about() -> None:
    assert OTHER_WORK.keys() | LEFT_AS_IT_IS.keys() == {field.name for field in fields(config.TrainConfig)}
    assert set(SAME_WORK) == LEFT_AS_IT_IS.keys()
    assert not OTHER_WORK.keys() & LEFT_AS_IT_IS.keys()


@pytest.mark.parametrize("key", OTHER_WORK)
def test_another_value_of_a_key_that_decides_the_work_makes_another_shape(key: str) -> None:
    assert shape_of(trains(**{key: OTHER_WORK[key]})) != shape_of(
        trains(**{key: getattr(config.TrainConfig(), key)})
    )


@pytest.mark.parametrize("key", LEFT_AS_IT_IS)
def test_another_value_of_a_key_that_leaves_the_work_leaves_the_shape(key: str) -> None:
    assert shape_of(trains(**{key: LEFT_AS_IT_IS[key]})) == shape_of(JOB)
    assert shape_prefilter(JOB)(dump_job(trains(**{key: LEFT_AS_IT_IS[key]})))


def test_the_last_step_is_what_the_job_says() -> None:
    assert steps_of(JOB) == 10
    assert steps_of(PROGRAM) is None
    assert PROGRAM.success is not None
    assert steps_of(replace(PROGRAM, success=replace(PROGRAM.success, steps=70))) == 70


@pytest.mark.parametrize("other", [trains(seed=7), trains(ema=0.99), replace(JOB, name="b"), trains(steps=9)])
def test_a_first_look_never_turns_a_job_of_the_same_shape_away(other: JobSpec) -> None:
    assert shape_prefilter(trains(ema=0.9))(dump_job(other))
    assert shape_prefilter(JOB)(dump_job(other))


@pytest.mark.parametrize("other", [trains(batch=16), trains(model=config.ModelConfig(dim=128)), PROGRAM])
def test_a_first_look_turns_most_others_away(other: JobSpec) -> None:
    assert not shape_prefilter(JOB)(dump_job(other))
    assert not shape_prefilter(other)(dump_job(JOB))


def test_a_first_look_turns_another_program_away() -> None:
    other = replace(PROGRAM, command=("python", "another.py"))
    assert not shape_prefilter(PROGRAM)(dump_job(other))
    assert shape_prefilter(PROGRAM)(dump_job(PROGRAM))


def test_a_job_of_before_that_lacks_a_key_is_read() -> None:
    stored = json.loads(dump_job(JOB))
    del stored["train"]["compile"], stored["train"]["model"]["dim"]
    assert shape_prefilter(JOB)(json.dumps(stored))
