"""The preflight: what a machine is, whether it is enough, and the way in which its ranks can talk."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.onstart.boxes import run_module, write_job
from tests.ports import free_port
from tests.programs import program_spec
from tests.torch_builds import torch_built_for
from tests.waiting import LONGEST_S
from vastrun.contract import layout
from vastrun.onstart.boot.preflight.comm import (
    CommTrial,
    link_fault,
    report_ready,
    run_forked,
    try_settings,
)
from vastrun.onstart.boot.preflight.machine import Machine, faults_of, version_fault, warnings
from vastrun.onstart.boot.preflight.nvidia_smi import Gpu
from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.job.program import PYTHON, TORCH

GPU = Gpu(
    index=0,
    name="NVIDIA H200",
    memory_mib=143771,
    driver="570.86.15",
    ecc_errors=0,
)
PAIR = (GPU, replace(GPU, index=1))
GOOD = Machine(
    cpu="CPU",
    shm_mib=8192,
    free_mib=90_000,
    gpus=PAIR,
    driver_cuda=(12, 8),
    torch_cuda=(12, 8),
    disk_mb_per_s=900,
)
NEEDS = {"gpus": 2, "torch": True}
ROOT = str(Path(layout.__file__).parents[2])

NVIDIA_SMI = """\
#!/bin/sh
case "$*" in
  *index,name,memory.total,driver_version*) echo "0, NVIDIA A100-SXM4-80GB, 81920, 550.54.15"
    echo "1, NVIDIA A100-SXM4-80GB, 81920, 550.54.15" ;;
  *ecc.errors*) echo "0, 00000000:3B:00.0, 4, 0"; echo "1, 00000000:5E:00.0, 3, [N/A]" ;;
  *--query-remapped-rows*) echo "00000000:3B:00.0, No, No"; echo "00000000:5E:00.0, Yes, 0" ;;
  "") echo "| NVIDIA-SMI 550.54.15   Driver Version: 550.54.15   CUDA Version: 12.4     |" ;;
  *) echo "Field is not a valid field to query."; exit 2 ;;
esac
"""
"""As of the driver 550, shortened; its second GPU has a faulty row of memory."""


def preflight(
    box: Path, *arguments: str, python: tuple[str, ...] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    """The step in a box, which gets the job of a training unless it has one; `python`: its options."""
    (box / "run").mkdir(parents=True, exist_ok=True)
    if not (box / layout.JOB).exists():
        write_job(box, command=None, train={})
    environment = {"VASTRUN_SETUP": "0", "VASTRUN_GPUS": "0", "VASTRUN_RANKS": "2", **variables}
    return run_module(box, "boot.preflight", *arguments, python=(sys.executable, *python), **environment)


@pytest.mark.parametrize(
    ("machine", "text"),
    [
        (replace(GOOD, gpus=PAIR[:1]), "the job needs 2 GPUs, this machine has 1"),
        (replace(GOOD, gpus=(), nvidia_smi_fault="not installed"), "nvidia-smi does not work here: not"),
        (
            replace(GOOD, gpus=(GPU, replace(PAIR[1], ecc_errors=3))),
            "GPU 1: 3 memory errors that could not be",
        ),
        (replace(GOOD, gpus=(GPU, replace(PAIR[1], remap_pending=True))), "GPU 1: faulty memory needs"),
        (replace(GOOD, gpus=(GPU, replace(PAIR[1], remap_failed=True))), "GPU 1: faulty memory that cannot"),
        (replace(GOOD, torch_cuda=(13, 0)), "the driver supports CUDA 12.8, but torch needs 13.0"),
        (replace(GOOD, shm_mib=64), "/dev/shm is smaller than 1 GiB"),
        (replace(GOOD, free_mib=100), "less than 512 MiB of disk are free"),
    ],
)
def test_a_machine_that_cannot_do_the_job_is_refused_with_the_reason(machine: Machine, text: str) -> None:
    (refusal,) = faults_of(machine, gpus=2, torch=True)
    assert text in refusal


@pytest.mark.parametrize(
    ("machine", "needs"),
    [
        (GOOD, NEEDS),
        (
            replace(GOOD, torch_cuda=(12, 9)),
            NEEDS,
        ),  # within a major version newer programs run on older drivers
        (replace(GOOD, torch_cuda=(13, 0)), {"gpus": 2, "torch": False}),
        (replace(GOOD, torch_cuda=None, driver_cuda=None, disk_mb_per_s=None), NEEDS),
        (replace(GOOD, shm_mib=64, gpus=PAIR[:1]), {"gpus": 1, "torch": True}),
    ],
)
def test_a_machine_that_can_is_not(machine: Machine, needs: dict[str, Any]) -> None:
    assert faults_of(machine, **needs) == []


def test_what_only_slows_a_job_down_is_a_warning() -> None:
    other = replace(PAIR[1], name="NVIDIA A100", used_mib=20_000)
    machine = replace(GOOD, gpus=(GPU, other), disk_mb_per_s=12.0)
    assert warnings(machine, gpus=2) == [
        "the GPUs differ, and the slowest determines the speed: NVIDIA A100, NVIDIA H200",
        "the disk is slow: checkpoints will take long",
        "GPU 1: other processes use 20000 MiB",
    ]
    assert warnings(GOOD, gpus=2) == []


def test_the_gpus_of_a_machine_are_told_and_its_fault_too(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(NVIDIA_SMI)
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    built = torch_built_for("12.4", tmp_path)
    finished = preflight(tmp_path / "box", "machine", VASTRUN_GPUS="2", PATH=path, PYTHONPATH=built)
    assert finished.returncode == 1
    lines = finished.stdout.splitlines()
    assert lines[0].startswith("CPU ") and lines[0].endswith("GiB of memory")
    assert lines[1:4] == [
        "GPU 0: NVIDIA A100-SXM4-80GB, 81920 MiB, driver 550.54.15",
        "GPU 1: NVIDIA A100-SXM4-80GB, 81920 MiB, driver 550.54.15",
        "CUDA 12.4 by the driver, torch is built for 12.4",
    ]
    assert re.fullmatch(r"/dev/shm \d+ MiB", lines[4])
    assert re.fullmatch(r"disk \d+ MiB free, writes \d+ MB/s", lines[5])
    assert "GPU 1: faulty memory needs a reset" in finished.stderr


def test_ranks_that_hang_in_one_way_are_killed_and_talk_in_the_next(tmp_path: Path) -> None:
    def work(rank: int, ranks: int, folder: Path) -> float | None:
        report_ready(rank, folder)
        if "NCCL_P2P_DISABLE" not in os.environ and rank == 1:
            time.sleep(60)
        return 7.5

    hangs, talks = try_settings(work, 2, {}, 2), try_settings(work, 2, {"NCCL_P2P_DISABLE": "1"}, 30)
    assert hangs == CommTrial(env={}, fault="rank 1 did not end within 2 s", gb_per_s=7.5)
    assert talks == CommTrial(env={"NCCL_P2P_DISABLE": "1"}, fault=None, gb_per_s=7.5)


def test_a_slow_start_is_no_fault_of_the_links(tmp_path: Path) -> None:
    def work(rank: int, ranks: int, folder: Path) -> float | None:
        time.sleep(starts_s * rank)  # CUDA starts, longer than the all-reduce may take
        report_ready(rank, folder)
        while not all((folder / f"ready-{other}").exists() for other in range(ranks)):
            time.sleep(0.01)
        return 7.5

    starts_s = 1.5
    assert run_forked(work, 2, {}, 1.0, start_s=30.0) == ({}, 7.5)
    starts_s = LONGEST_S
    late = run_forked(work, 2, {}, 30.0, start_s=2.0)
    assert late == ({1: "was not ready within 2 s"}, None)


def test_rank_that_fails_as_it_starts_is_told_and_the_others_are_not_waited_for_long(tmp_path: Path) -> None:
    def work(rank: int, ranks: int, folder: Path) -> float | None:
        if rank == 1:
            raise RuntimeError("no such device")
        time.sleep(LONGEST_S)
        return None

    began = time.monotonic()
    faults, _ = run_forked(work, 2, {}, 0.5, start_s=LONGEST_S)
    assert faults == {0: "did not end within 0 s", 1: "exited 1"}
    assert time.monotonic() - began < LONGEST_S


def test_links_that_are_absurdly_slow_do_not_work() -> None:
    slow = try_settings(lambda *_: 0.01, 1, {}, 30, min_gb_per_s=0.5)
    assert slow.fault == "only 0.01 GB/s, expected at least 0.5"
    assert try_settings(lambda *_: None, 1, {}, 30, min_gb_per_s=0.5).fault is None


@pytest.mark.torch
@pytest.mark.slow
def test_two_ranks_all_reduce_and_what_was_found_is_kept(tmp_path: Path) -> None:
    finished = preflight(tmp_path, "comm")
    assert finished.returncode == 0, finished.stderr
    assert re.fullmatch(r"all-reduce 2 ranks gloo 16 MB: \d+\.\d GB/s, sum correct\n", finished.stdout)
    kept = json.loads((tmp_path / layout.PREFLIGHT).read_text())
    assert (kept["backend"], kept["ranks"], kept["env"]) == ("gloo", 2, {})
    assert [trial["fault"] for trial in kept["trials"]] == [None]


@pytest.mark.torch
def test_one_rank_without_a_gpu_has_nobody_to_talk_to(tmp_path: Path) -> None:
    finished = preflight(tmp_path, "comm", VASTRUN_RANKS="1")
    assert (finished.returncode, finished.stdout) == (0, "one rank: no communication to check\n")


@pytest.mark.parametrize(
    ("version", "gpus", "fault"),
    [
        ("2.13.0", "2", "torch is built for the CPU only: take an image with CUDA"),
        ("2.4.1+cu121", "0", "`train:` needs torch 2.11 or newer, below 2.16, and this is torch 2.4"),
    ],
)
def test_another_torch_is_the_images_fault_unless_set_up_may_replace_it(
    version: str, gpus: str, fault: str, tmp_path: Path
) -> None:
    variables = {"VASTRUN_GPUS": gpus, "PYTHONPATH": torch_built_for(None, tmp_path, version=version)}
    refused = preflight(tmp_path, "comm", **variables)
    assert (refused.returncode, refused.stdout, refused.stderr) == (78, "", f"{fault}\n")
    passed = preflight(tmp_path, "comm", VASTRUN_SETUP="1", **variables)
    told = f"{fault}, unless set-up installs it; the communication of the ranks is not tested\n"
    assert (passed.returncode, passed.stdout, passed.stderr) == (0, told, "")


def test_an_image_without_torch_is_told(tmp_path: Path) -> None:
    finished = preflight(tmp_path, "comm", python=("-S",), PYTHONPATH=ROOT)
    told = "torch is not installed: take an image that has it\n"
    assert (finished.returncode, finished.stderr) == (78, told)


def test_a_command_needs_no_torch_and_its_ranks_are_not_tried_then(tmp_path: Path) -> None:
    write_job(tmp_path, command=["x"])
    for check in ("comm", "link"):
        variables = {"PYTHONPATH": ROOT, "VASTRUN_LINK_MBPS": "10"}
        finished = preflight(tmp_path, check, python=("-S",), **variables)
        assert (finished.returncode, finished.stderr) == (0, "")
        told = r"torch is not installed: the \w+ of the \w+ is not tested before your program runs\n"
        assert re.fullmatch(told, finished.stdout)


@pytest.mark.parametrize(
    ("torch", "python", "fault"),
    [
        ((2, 11), (3, 11), ""),
        ((2, 15), (3, 14), ""),
        (None, (3, 12), ""),
        ((2, 10), (3, 12), "`train:` needs torch 2.11 or newer, below 2.16, and this is torch 2.10"),
        ((2, 16), (3, 12), "`train:` needs torch 2.11 or newer, below 2.16, and this is torch 2.16"),
        ((2, 11), (3, 10), "`train:` needs Python 3.11 or newer, and this is Python 3.10"),
    ],
)
def test_the_onboard_trainer_states_the_versions_that_it_works_with(
    torch: tuple[int, int] | None, python: tuple[int, int], fault: str
) -> None:
    assert version_fault(program_spec(TrainConfig()), torch, python) == fault


def test_these_are_the_versions_that_its_package_asks_for() -> None:
    project = tomllib.loads(Path(ROOT, "pyproject.toml").read_text())["project"]
    needed = next(line for line in project["optional-dependencies"]["trainer"] if line.startswith("torch"))
    assert needed == "torch>={},<{}".format(*TORCH)
    assert project["requires-python"] == f">={PYTHON}"


@pytest.mark.parametrize(("job", "code"), [({"command": ["x"]}, 0), ({"train": {}}, 78)])
def test_a_torch_that_cannot_be_imported_is_no_fault_of_the_machine(
    tmp_path: Path, job: dict[str, Any], code: int
) -> None:
    built = torch_built_for(None, tmp_path)
    write_job(tmp_path, **{"command": None, **job})
    finished = preflight(tmp_path, "comm", PYTHONPATH=built)
    assert finished.returncode == code
    said = finished.stdout + finished.stderr
    assert "torch cannot be imported: No module named 'torch.distributed'" in said


def linked(folder: Path, min_mbps: str) -> list[tuple[int, str]]:
    """How the step ends on each of two nodes, and what it says."""
    place = f"127.0.0.1:{free_port(2)}"
    with ThreadPoolExecutor(2) as pool:

        def node(number: int) -> subprocess.CompletedProcess[str]:
            box = folder / str(number)
            write_job(box, nodes=2, command=["x"])
            place_of = {"VASTRUN_NODE": str(number), "VASTRUN_RENDEZVOUS": place}
            return preflight(box, "link", VASTRUN_LINK_MBPS=min_mbps, **place_of)

        ended = list(pool.map(node, range(2)))
    return [(one.returncode, one.stdout + one.stderr) for one in ended]


@pytest.mark.torch
@pytest.mark.slow
def test_two_nodes_measure_the_link_between_them_and_both_hold_it_against_the_floor(tmp_path: Path) -> None:
    for code, said in linked(tmp_path / "enough", "1"):
        assert (code, bool(re.fullmatch(_MEASURED, said))) == (0, True), said
    for code, said in linked(tmp_path / "more", "1e9"):
        assert (code, "Mbit/s between the nodes, expected at least 1e+09" in said) == (1, True), said


_MEASURED = r"all-reduce 2 nodes gloo 16 MB: \d+ Mbit/s, sum correct\n"


def test_a_link_that_no_node_answers_on_is_told() -> None:
    assert link_fault({}, 400.0, 1000.0) == "only 400 Mbit/s between the nodes, expected at least 1000"
    why = "was not ready within 600 s"
    assert link_fault({0: why}, 0.0, 1.0) == f"the nodes cannot reach each other: the rank {why}"
    assert link_fault({}, 10_000.0, 1000.0) == ""
