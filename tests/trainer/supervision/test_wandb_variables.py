"""W&B's variables of a program: the same run after a restart and in the next attempt, one for each rank."""

from __future__ import annotations

from typing import Any

import pytest

from tests.trainer.supervision.launches import job_of
from vastrun.contract.job import Job
from vastrun.contract.records import read_as
from vastrun.trainer.supervision.wandb_variables import wandb_id, wandb_variables

RUN = "calm-heron-3f1a"
BATCH = {"batch": {"name": "widths", "values": {"lr": 0.1}}, "name": "demo"}


def job(**changes: Any) -> Job:
    made = read_as(Job, job_of(**changes))
    assert isinstance(made, Job)
    return made


def test_a_run_is_continued_by_its_id() -> None:
    assert wandb_variables(job(name="demo"), 0, 1, {}) == {
        "WANDB_NAME": f"demo {RUN}",
        "WANDB_RUN_ID": RUN,
        "WANDB_RESUME": "allow",
    }


def test_each_rank_has_a_run_of_its_own_in_one_group() -> None:
    first, second = (wandb_variables(job(name="demo"), rank, 2, {}) for rank in (0, 1))
    assert (first["WANDB_RUN_ID"], second["WANDB_RUN_ID"]) == (RUN, f"{RUN}-rank1")
    assert (first["WANDB_NAME"], second["WANDB_NAME"]) == (f"demo {RUN}", f"demo {RUN} rank 1")
    assert first["WANDB_RUN_GROUP"] == second["WANDB_RUN_GROUP"] == RUN


def test_the_next_attempt_continues_the_run_of_the_first() -> None:
    third = job(run_id="third", continues=["second", "first"])
    assert wandb_variables(third, 0, 1, {})["WANDB_RUN_ID"] == wandb_id(third) == "first"


@pytest.mark.parametrize(("continues", "id"), [(["checkpoints"], RUN), (["first", "checkpoints"], "first")])
def test_a_url_to_start_from_names_no_run(continues: list[str], id: str) -> None:
    assert wandb_id(job(continues=continues, start_from="s3://bucket/checkpoints")) == id


def test_runs_of_a_batch_are_in_its_group() -> None:
    env = wandb_variables(job(**BATCH), 0, 2, {})
    assert (env["WANDB_RUN_GROUP"], env["WANDB_TAGS"]) == ("widths", "widths")
    assert env["WANDB_NAME"] == f"demo {RUN}"


def test_what_the_user_says_stays() -> None:
    own = {"WANDB_RUN_GROUP": "mine", "WANDB_TAGS": "a,b", "WANDB_RUN_ID": "x", "WANDB_NAME": "n"}
    assert wandb_variables(job(**BATCH), 1, 2, own) == {"WANDB_RESUME": "allow"}


def test_a_program_that_never_resumes_has_a_new_run_at_each_start() -> None:
    assert wandb_variables(job(name="demo"), 0, 1, {"WANDB_RESUME": "never"}) == {"WANDB_NAME": f"demo {RUN}"}


def test_the_onboard_trainer_sets_its_own() -> None:
    assert wandb_variables(job(**BATCH, train={"steps": 5}, command=None), 0, 2, {}) == {}
