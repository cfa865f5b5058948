"""The ranks' environment: who wins over whom."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.onstart.supervision.launches import read_job
from vastrun.onstart.supervision.environment import lowers_debug, rank_environment, wandb_id, wandb_variables
from vastrun.onstart.supervision.restarts import Start

BOX = Path("/box")
START = Start(world_size=2)
DEMO = read_job(name="demo")
RUN = "calm-heron-3f1a"
TRAINING: dict[str, Any] = {"train": {"steps": 5}, "command": None}
BATCH = {"batch": {"name": "widths", "values": {"lr": 0.1}}, "name": "demo"}


def env_of(
    inherited: Mapping[str, str] | None = None, start: Start = START, **changes: Any
) -> dict[str, str]:
    """The environment of the ranks of a job with these options."""
    return rank_environment(read_job(**changes), start, BOX, inherited or {})


def test_the_job_wins_over_our_defaults_and_the_defaults_over_the_image() -> None:
    inherited = {"OMP_NUM_THREADS": "64", "NCCL_DEBUG": "TRACE", "HF_HOME": "/cache"}
    env = env_of(inherited, Start(world_size=1000), env={"NCCL_DEBUG": "INFO"})
    assert (env["OMP_NUM_THREADS"], env["NCCL_DEBUG"], env["HF_HOME"]) == ("1", "INFO", "/cache")


def test_the_threads_of_the_training_are_those_of_its_ranks() -> None:
    assert env_of(**{**TRAINING, "train": {"steps": 5, "threads": 3}})["OMP_NUM_THREADS"] == "3"


def test_the_memory_of_gpus_grows_in_one_piece_unless_the_job_says_otherwise() -> None:
    assert env_of(**TRAINING, gpus=2)["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"
    older = env_of(**TRAINING, gpus=2, env={"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"})
    for other in (older, env_of(**TRAINING, gpus=0), env_of(gpus=2)):
        assert "PYTORCH_ALLOC_CONF" not in other


def test_the_agent_asks_nvml_for_gpus_and_leaves_the_cuda_driver_alone() -> None:
    name = "PYTORCH_NVML_BASED_CUDA_CHECK"
    assert env_of(gpus=2)[name] == "1"
    assert env_of(gpus=2, env={name: "0"})[name] == "0"
    assert name not in env_of(gpus=0)


def test_cublas_and_nccl_add_in_one_order_in_a_deterministic_training_unless_the_job_says_otherwise() -> None:
    fixed = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "NCCL_ALGO": "Ring"}
    training = {**TRAINING, "train": {"steps": 5, "deterministic": True}, "gpus": 2}
    assert fixed.items() <= env_of({"NCCL_ALGO": "NVLS"}, **training).items()
    assert env_of(**training, env={"NCCL_ALGO": "Tree"})["NCCL_ALGO"] == "Tree"
    for other in (env_of(gpus=2), env_of(**TRAINING, gpus=2)):
        assert fixed.keys().isdisjoint(other)


def test_gloo_looks_no_name_up_where_all_ranks_are_on_one_machine_unless_somebody_set_how() -> None:
    name = "GLOO_SOCKET_IFNAME"
    for gpus in (0, 2):
        assert env_of(**TRAINING, gpus=gpus)[name] == "lo"
    for other in (env_of(gpus=0), env_of(**TRAINING, nodes=2)):
        assert name not in other
    assert env_of({name: "eth0"}, **TRAINING)[name] == "eth0"
    assert env_of(**TRAINING, env={name: "eth1"})[name] == "eth1"


def test_ranks_of_accelerate_train_together_on_cpus_unless_the_job_says_otherwise() -> None:
    name = "ACCELERATE_USE_CPU"
    assert env_of(gpus=0)[name] == "true"
    assert name not in env_of(gpus=2)
    assert env_of(gpus=0, env={name: "false"})[name] == "false"


@pytest.mark.parametrize("name", ["PYTHONFAULTHANDLER", "TORCH_FR_DUMP_TEMP_FILE", "VASTRUN_BOX"])
def test_what_the_supervisor_lives_by_cannot_be_changed(name: str) -> None:
    assert env_of(env={name: "0"})[name] != "0"


def test_the_watchdog_of_nccl_comes_after_the_supervisor() -> None:
    assert env_of(stall_s=100, start_s=300.5)["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"] == "361"


@pytest.mark.parametrize(
    ("changes", "level"),
    [({}, "INFO"), ({"gpus": 2}, "DETAIL"), ({"gpus": 2, **TRAINING}, "INFO")],
)
def test_a_debug_level_fatal_on_gloo_becomes_the_next_one(changes: dict[str, Any], level: str) -> None:
    asked = read_job(env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}, **changes)
    assert rank_environment(asked, START, BOX, {})["TORCH_DISTRIBUTED_DEBUG"] == level
    assert lowers_debug(asked, {}) == (level == "INFO")
    assert not lowers_debug(read_job(**changes), {"TORCH_DISTRIBUTED_DEBUG": "INFO"})


def test_a_start_says_which_it_is_what_fits_and_which_gpus_are_left() -> None:
    later = Start(number=2, world_size=1, micro_batch=4, gpus=("GPU-a", "GPU-c"))
    assert env_of()["VASTRUN_RESTART"] == "0"
    assert "VASTRUN_MICRO_BATCH" not in env_of()
    env = env_of({"CUDA_VISIBLE_DEVICES": "0,1,2"}, later, env={"VASTRUN_RESTART": "7"})
    names = ("VASTRUN_RESTART", "VASTRUN_MICRO_BATCH", "CUDA_VISIBLE_DEVICES")
    assert [env[name] for name in names] == ["2", "4", "GPU-a,GPU-c"]


def test_python_is_the_one_that_trains_and_finds_the_trainer_first() -> None:
    env = env_of({"PATH": "/usr/bin", "PYTHONPATH": "/mine"})
    assert env["PATH"] == f"{Path(sys.executable).parent}:/usr/bin"
    startup, packages, mine = env["PYTHONPATH"].split(":")
    assert (Path(startup) / "sitecustomize.py").is_file()
    assert (Path(packages) / "vastrun" / "onstart" / "supervise.py").is_file()
    assert mine == "/mine"


def test_the_onboard_trainer_finds_the_users_code() -> None:
    assert env_of(**TRAINING)["PYTHONPATH"].endswith(":/box/code")


def test_ranks_talk_in_the_way_that_the_preflight_found_unless_the_job_says_otherwise(tmp_path: Path) -> None:
    found = tmp_path / "run" / "preflight.json"
    found.parent.mkdir()
    found.write_text('{"env": {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}}')
    env = rank_environment(read_job(env={"NCCL_SHM_DISABLE": "0"}), START, tmp_path, {})
    assert (env["NCCL_P2P_DISABLE"], env["NCCL_SHM_DISABLE"]) == ("1", "0")


def test_a_run_is_continued_by_its_id() -> None:
    names = {"WANDB_NAME": f"demo {RUN}", "WANDB_RUN_ID": RUN, "WANDB_RESUME": "allow"}
    assert wandb_variables(DEMO, 0, 1, {}) == names


def test_each_rank_has_a_run_of_its_own_in_one_group() -> None:
    first, second = (wandb_variables(DEMO, rank, 2, {}) for rank in (0, 1))
    assert (first["WANDB_RUN_ID"], second["WANDB_RUN_ID"]) == (RUN, f"{RUN}-rank1")
    assert (first["WANDB_NAME"], second["WANDB_NAME"]) == (f"demo {RUN}", f"demo {RUN} rank 1")
    assert first["WANDB_RUN_GROUP"] == second["WANDB_RUN_GROUP"] == RUN


def test_the_next_attempt_continues_the_run_of_the_first() -> None:
    third = read_job(run_id="third", continues=["second", "first"])
    assert wandb_variables(third, 0, 1, {})["WANDB_RUN_ID"] == wandb_id(third) == "first"


@pytest.mark.parametrize(("continues", "id"), [(["checkpoints"], RUN), (["first", "checkpoints"], "first")])
def test_a_url_to_start_from_names_no_run(continues: list[str], id: str) -> None:
    assert wandb_id(read_job(continues=continues, start_from="s3://bucket/checkpoints")) == id


def test_runs_of_a_batch_are_in_its_group() -> None:
    env = wandb_variables(read_job(**BATCH), 0, 2, {})
    assert (env["WANDB_RUN_GROUP"], env["WANDB_TAGS"]) == ("widths", "widths")
    assert env["WANDB_NAME"] == f"demo {RUN}"


def test_what_the_user_says_stays() -> None:
    own = {"WANDB_RUN_GROUP": "mine", "WANDB_TAGS": "a,b", "WANDB_RUN_ID": "x", "WANDB_NAME": "n"}
    assert wandb_variables(read_job(**BATCH), 1, 2, own) == {"WANDB_RESUME": "allow"}


def test_a_program_that_never_resumes_has_a_new_run_at_each_start() -> None:
    assert wandb_variables(DEMO, 0, 1, {"WANDB_RESUME": "never"}) == {"WANDB_NAME": f"demo {RUN}"}


def test_the_onboard_trainer_sets_its_own() -> None:
    assert wandb_variables(read_job(**BATCH, **TRAINING), 0, 2, {}) == {}
