"""The ranks' environment: who wins over whom."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.onstart.supervision.launches import read_job as job
from vastrun.onstart.supervision.environment import lowers_debug, rank_environment, wandb_id, wandb_variables
from vastrun.onstart.supervision.restarts import Start

BOX = Path("/box")
START = Start(world_size=2)
RUN = "calm-heron-3f1a"
BATCH = {"batch": {"name": "widths", "values": {"lr": 0.1}}, "name": "demo"}


def test_the_job_wins_over_our_defaults_and_the_defaults_over_the_image() -> None:
    inherited = {"OMP_NUM_THREADS": "64", "NCCL_DEBUG": "TRACE", "HF_HOME": "/cache"}
    env = rank_environment(job(env={"NCCL_DEBUG": "INFO"}), Start(world_size=1000), BOX, inherited)
    assert (env["OMP_NUM_THREADS"], env["NCCL_DEBUG"], env["HF_HOME"]) == ("1", "INFO", "/cache")


def test_the_threads_of_the_training_are_those_of_its_ranks() -> None:
    env = rank_environment(job(train={"steps": 5, "threads": 3}, command=None), START, BOX, {})
    assert env["OMP_NUM_THREADS"] == "3"


def test_the_memory_of_gpus_grows_in_one_piece_unless_the_job_says_otherwise() -> None:
    on_gpus = {"train": {"steps": 5}, "command": None, "gpus": 2}
    assert (
        rank_environment(job(**on_gpus), START, BOX, {})["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"
    )
    older = job(**on_gpus, env={"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"})
    for other in (older, job(**{**on_gpus, "gpus": 0}), job(gpus=2)):
        assert "PYTORCH_ALLOC_CONF" not in rank_environment(other, START, BOX, {})


def test_the_agent_asks_nvml_for_gpus_and_leaves_the_cuda_driver_alone() -> None:
    name = "PYTORCH_NVML_BASED_CUDA_CHECK"
    assert rank_environment(job(gpus=2), START, BOX, {})[name] == "1"
    assert rank_environment(job(gpus=2, env={name: "0"}), START, BOX, {})[name] == "0"
    assert name not in rank_environment(job(gpus=0), START, BOX, {})


def test_cublas_and_nccl_add_in_one_order_in_a_deterministic_training_unless_the_job_says_otherwise() -> None:
    fixed = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "NCCL_ALGO": "Ring"}
    training = {"train": {"steps": 5, "deterministic": True}, "command": None, "gpus": 2}
    inherited = {"NCCL_ALGO": "NVLS"}
    assert fixed.items() <= rank_environment(job(**training), START, BOX, inherited).items()
    own = job(**training, env={"NCCL_ALGO": "Tree"})
    assert rank_environment(own, START, BOX, {})["NCCL_ALGO"] == "Tree"
    for other in (job(gpus=2), job(**{**training, "train": {"steps": 5}})):
        assert fixed.keys().isdisjoint(rank_environment(other, START, BOX, {}))


def test_gloo_looks_no_name_up_where_all_ranks_are_on_one_machine_unless_somebody_set_how() -> None:
    name, training = "GLOO_SOCKET_IFNAME", {"train": {"steps": 5}, "command": None}
    for gpus in (0, 2):
        assert rank_environment(job(**training, gpus=gpus), START, BOX, {})[name] == "lo"
    for other in (job(gpus=0), job(**training, nodes=2)):
        assert name not in rank_environment(other, START, BOX, {})
    assert rank_environment(job(**training), START, BOX, {name: "eth0"})[name] == "eth0"
    assert rank_environment(job(**training, env={name: "eth1"}), START, BOX, {})[name] == "eth1"


def test_ranks_of_accelerate_train_together_on_cpus_unless_the_job_says_otherwise() -> None:
    assert rank_environment(job(gpus=0), START, BOX, {})["ACCELERATE_USE_CPU"] == "true"
    assert "ACCELERATE_USE_CPU" not in rank_environment(job(gpus=2), START, BOX, {})
    own = job(gpus=0, env={"ACCELERATE_USE_CPU": "false"})
    assert rank_environment(own, START, BOX, {})["ACCELERATE_USE_CPU"] == "false"


@pytest.mark.parametrize("name", ["PYTHONFAULTHANDLER", "TORCH_FR_DUMP_TEMP_FILE", "VASTRUN_BOX"])
def test_what_the_supervisor_lives_by_cannot_be_changed(name: str) -> None:
    assert rank_environment(job(env={name: "0"}), START, BOX, {})[name] != "0"


def test_the_watchdog_of_nccl_comes_after_the_supervisor() -> None:
    env = rank_environment(job(stall_s=100, start_s=300.5), START, BOX, {})
    assert env["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"] == "361"


@pytest.mark.parametrize(
    ("changes", "level"),
    [({}, "INFO"), ({"gpus": 2}, "DETAIL"), ({"gpus": 2, "train": {"steps": 5}, "command": None}, "INFO")],
)
def test_a_debug_level_fatal_on_gloo_becomes_the_next_one(changes: dict[str, Any], level: str) -> None:
    asked = job(env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}, **changes)
    assert rank_environment(asked, START, BOX, {})["TORCH_DISTRIBUTED_DEBUG"] == level
    assert lowers_debug(asked, {}) == (level == "INFO")
    assert not lowers_debug(job(**changes), {"TORCH_DISTRIBUTED_DEBUG": "INFO"})


def test_a_start_says_which_it_is_what_fits_and_which_gpus_are_left() -> None:
    first, later = START, Start(number=2, world_size=1, micro_batch=4, gpus=("GPU-a", "GPU-c"))
    assert rank_environment(job(), first, BOX, {})["VASTRUN_RESTART"] == "0"
    assert "VASTRUN_MICRO_BATCH" not in rank_environment(job(), first, BOX, {})
    env = rank_environment(job(env={"VASTRUN_RESTART": "7"}), later, BOX, {"CUDA_VISIBLE_DEVICES": "0,1,2"})
    names = ("VASTRUN_RESTART", "VASTRUN_MICRO_BATCH", "CUDA_VISIBLE_DEVICES")
    assert [env[name] for name in names] == ["2", "4", "GPU-a,GPU-c"]


def test_python_is_the_one_that_trains_and_finds_the_trainer_first() -> None:
    inherited = {"PATH": "/usr/bin", "PYTHONPATH": "/mine"}
    env = rank_environment(job(), START, BOX, inherited)
    assert env["PATH"] == f"{Path(sys.executable).parent}:/usr/bin"
    startup, packages, mine = env["PYTHONPATH"].split(":")
    assert (Path(startup) / "sitecustomize.py").is_file()
    assert (Path(packages) / "vastrun" / "onstart" / "supervise.py").is_file()
    assert mine == "/mine"


def test_the_onboard_trainer_finds_the_users_code() -> None:
    env = rank_environment(job(train={"steps": 5}, command=None), START, BOX, {})
    assert env["PYTHONPATH"].endswith(":/box/code")


def test_ranks_talk_in_the_way_that_the_preflight_found_unless_the_job_says_otherwise(tmp_path: Path) -> None:
    found = tmp_path / "run" / "preflight.json"
    found.parent.mkdir()
    found.write_text('{"env": {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}}')
    env = rank_environment(job(env={"NCCL_SHM_DISABLE": "0"}), START, tmp_path, {})
    assert (env["NCCL_P2P_DISABLE"], env["NCCL_SHM_DISABLE"]) == ("1", "0")


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
