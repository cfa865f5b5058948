"""A machine is compared with its offer, by its list and its own tools; and its counter with its line."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests import parts
from tests.http_servers import QuietHandler, serving
from tests.jobs import train_job
from tests.launcher.decisions.test_policy import RENTED
from tests.launcher.terminal import Terminal
from tests.offers import rtx_4090
from tests.waiting import LONGEST_S
from vastrun.launcher.core import BoxStatus, Cause, ExtraRates, Instance, Meter
from vastrun.launcher.core.job import Checkpoints, JobSpec, Resources
from vastrun.launcher.decisions import offer_check
from vastrun.launcher.decisions.offer_check import (
    COMMAND,
    GB,
    BoxHardware,
    TrafficMeasure,
    box_mismatch,
    confirmed,
    counted,
    counter_fault,
    gpus_in_use,
    listing_mismatch,
    read_box,
)

OFFER = rtx_4090(gpus=2, gpu_memory_gb=24.6, disk_gb=800.0, usd_per_hour=0.80, cuda=12.8)
WANTED = Resources(gpus=2, disk_gb=100.0, memory_gb=64.0)
LISTED = Instance(
    id="7",
    label="vastrun-calm-heron-3f1a",
    state="running",
    usd_per_hour=0.81,
    rented_at=0.0,
    gpu_name="RTX 4090",
    gpus=2,
    disk_gb=100.0,
    cuda=12.8,
)
SHOWN = """\
disk_kb 104857600
memory_kb 263996412
memory_bytes 68719476736
gpu 24564, NVIDIA GeForce RTX 4090
gpu 24564, NVIDIA GeForce RTX 4090
cuda 12.8
"""
TOOLS = ("timeout", "head", "wc")


def test_a_machine_as_offered_is_accepted() -> None:
    assert listing_mismatch(LISTED, OFFER, WANTED) == ""
    assert box_mismatch(read_box(SHOWN), OFFER, WANTED) == ""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gpu_name": "RTX 3090"}, "RTX 3090 instead of RTX 4090"),
        ({"gpus": 1}, "1 of 2 GPUs"),
        ({"disk_gb": 50.0}, "50 GB disk instead of 100"),
        ({"cuda": 12.4}, "CUDA 12.4 instead of 12.8"),
        ({"usd_per_hour": 1.2}, "$1.200/h instead of $0.800/h"),
    ],
)
def test_what_the_provider_lists_must_be_what_it_offered(changes: dict[str, object], said: str) -> None:
    listed = replace(LISTED, **changes)  # type: ignore[arg-type]
    assert listing_mismatch(listed, OFFER, WANTED) == said


def test_what_the_provider_does_not_say_yet_is_no_fault() -> None:
    fresh = replace(LISTED, gpu_name="", gpus=0, disk_gb=0.0, cuda=0.0)
    assert listing_mismatch(fresh, OFFER, WANTED) == ""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("gpu 24564, NVIDIA GeForce RTX 4090\n" * 2, "", "nvidia-smi shows no GPU"),
        ("gpu 24564, NVIDIA GeForce RTX 4090\n" * 2, "gpu 24564, NVIDIA GeForce RTX 4090\n", "1 of 2 GPUs"),
        ("RTX 4090\ncuda", "RTX 3090\ncuda", "NVIDIA GeForce RTX 3090 instead of RTX 4090"),
        ("gpu 24564", "gpu 12282", "12 GB a GPU instead of 25"),
        ("cuda 12.8", "cuda 12.4", "CUDA 12.4 instead of 12.8"),
        ("disk_kb 104857600", "disk_kb 52428800", "54 GB disk instead of 100"),
        ("memory_bytes 68719476736", "memory_bytes 34359738368", "34 GB memory instead of 64"),
    ],
)
def test_what_the_box_shows_must_be_what_was_offered(old: str, new: str, said: str) -> None:
    assert old in SHOWN
    assert box_mismatch(read_box(SHOWN.replace(old, new)), OFFER, WANTED) == said


def test_a_job_without_gpus_does_not_ask_for_any() -> None:
    assert box_mismatch(BoxHardware(disk_gb=100.0), OFFER, Resources(gpus=0, disk_gb=100.0)) == ""


@pytest.mark.parametrize(
    ("offered", "shown", "same"),
    [
        ("RTX 4090", "NVIDIA GeForce RTX 4090", True),
        ("RTX 4090", "NVIDIA GeForce RTX 4090 D", False),
        ("RTX 3060", "NVIDIA GeForce RTX 3060 Ti", False),
        ("RTX 4070S Ti", "NVIDIA GeForce RTX 4070 Ti SUPER", True),
        ("A100 SXM4", "NVIDIA A100-SXM4-80GB", True),
        ("A100 PCIE", "NVIDIA A100 80GB PCIe", True),
        ("H100 SXM", "NVIDIA H100 80GB HBM3", True),
        ("H100 SXM", "NVIDIA H200", False),
        ("RTX 6000Ada", "NVIDIA RTX 6000 Ada Generation", True),
        ("Tesla V100", "Tesla V100-SXM2-16GB", True),
        ("L40", "NVIDIA L40S", False),
        ("RTX 4090D", "NVIDIA GeForce RTX 4090 D", True),
        ("RTX 4090", "NVIDIA GeForce RTX 4090 Laptop GPU", False),
        ("RTX 4070S", "NVIDIA GeForce RTX 4070 SUPER", True),
        ("RTX 4070S", "NVIDIA GeForce RTX 4070", False),
        ("RTX PRO 6000 S", "NVIDIA RTX PRO 6000 Blackwell Server Edition", True),
        ("RTX PRO 6000 WS", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", True),
        ("RTX PRO 6000 WS", "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", False),
        ("A100 SXM4", "NVIDIA A100 80GB PCIe", False),
        ("H100 SXM", "NVIDIA H100 PCIe", False),
    ],
)
def test_a_gpu_is_known_by_the_name_that_its_driver_gives_it(offered: str, shown: str, same: bool) -> None:
    box = BoxHardware(gpus=((shown, 24.6),))
    offer = replace(OFFER, gpu_name=offered, gpus=1, gpu_memory_gb=0.0)
    assert (box_mismatch(box, offer, Resources(gpus=1)) == "") is same


@pytest.mark.parametrize(
    ("text", "memory_gb"),
    [
        ("memory_kb 4000000\nmemory_bytes 500000000\n", 0.5),
        ("memory_kb 4000000\nmemory_bytes 0\n", 4.096),
        ("memory_kb 4000000\n", 4.096),
    ],
    ids=["a limit below it", "a limit of nothing", "no limit"],
)
def test_memory_is_that_of_the_machine_or_the_container_s_limit_below_it(text: str, memory_gb: float) -> None:
    assert read_box(text).memory_gb == pytest.approx(memory_gb)


@pytest.mark.parametrize("text", ["", "disk_kb\n", "memory_bytes max\n", "gpu , \n\n", "what is this"])
def test_what_cannot_be_read_is_unknown(text: str) -> None:
    box = read_box(text)
    assert (box.disk_gb, box.memory_gb, box.cuda) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("", ""),
        ("gpu_used 0, 24564\n", ""),
        ("gpu_used 23424, 24564\n", "GPU 0: 23.4 of 24.6 GB in use by other programs"),
        ("gpu_used 1, 24564\ngpu_used 1200, 16376\n", "GPU 1: 1.2 of 16.4 GB in use by other programs"),
        ("gpu_used [N/A], 24564\n", ""),
        ("gpu_used nan, nan\ngpu_used inf, inf\ngpu_used -9, 1e308\n", ""),
        ("gpu_used 23424\n", ""),
        # The driver's share: 1.1 GB, or 5 % of a large GPU.
        ("gpu_used 1100, 16000\n", ""),
        ("gpu_used 1101, 16000\n", "GPU 0: 1.1 of 16.0 GB in use by other programs"),
        ("gpu_used 4000, 80000\n", ""),
        ("gpu_used 4001, 80000\n", "GPU 0: 4.0 of 80.0 GB in use by other programs"),
        ("gpu_used 24000, 24000\n", "GPU 0: 24.0 of 24.0 GB in use by other programs"),
        ("gpu_used 9000000, 10000000\n", "GPU 0: 9000.0 of 10000.0 GB in use by other programs"),
        ("gpu_used 9000000, 10000001\n", ""),
        ("gpu_used 23424, 24564\n" * 3, ""),
    ],
)
def test_gpu_memory_that_others_hold_is_told_from_what_a_driver_takes(printed: str, said: str) -> None:
    assert gpus_in_use(read_box(SHOWN + printed), OFFER) == said


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_command_runs_in_any_shell_and_tells_disk_and_memory(shell: str) -> None:
    done = subprocess.run(
        [shell, "-c", COMMAND], capture_output=True, text=True, timeout=LONGEST_S, check=False
    )
    box = read_box(done.stdout)
    assert box.disk_gb > 0
    assert box.memory_gb > 0


def test_the_cuda_version_is_found_in_the_table_that_nvidia_smi_prints() -> None:
    table = "| NVIDIA-SMI 570.133.20     Driver Version: 570.133.20     CUDA Version: 12.8     |"
    (sed,) = [line.split("| ")[-1] for line in COMMAND.splitlines() if "CUDA" in line]
    done = subprocess.run(
        ["sh", "-c", sed], input=table, capture_output=True, text=True, timeout=LONGEST_S, check=True
    )
    assert read_box(done.stdout).cuda == 12.8


class Pages(QuietHandler):
    """16 MB, as fast as they go; 404 for `/none`."""

    def do_GET(self) -> None:
        with suppress(ConnectionError):  # it had enough
            self.answer(*((404, b"no such page") if self.path == "/none" else (200, bytes(16_000_000))))


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving(Pages) as url:
        yield url


def machine_with(folder: Path, *services: str) -> str:
    """The PATH of a machine that has only these."""
    for tool in services:
        found = sys.executable if tool == "python3" else shutil.which(tool)
        if found is None:
            parts.require(tool)
        (folder / tool).write_text(f'#!/bin/sh\nexec {found} "$@"\n')
        (folder / tool).chmod(0o755)
    return str(folder)


def seen_by(path: str, url: str, mbps: float = 0.0) -> str:
    """What is wrong with its line."""
    shell, wanted = shutil.which("sh") or "/bin/sh", Resources(down_mbps=mbps)
    done = subprocess.run(
        [shell, "-c", offer_check.command(wanted, url)],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith("down "), done.stderr
    return offer_check.fault(done.stdout, wanted)


@pytest.mark.parametrize(("mbps", "size"), [(0.0, 65_536), (1.0, 375_000), (1e9, 16_000_000)])
def test_what_is_downloaded_takes_three_seconds_at_the_requested_speed(mbps: float, size: int) -> None:
    assert offer_check.command(Resources(down_mbps=mbps)).splitlines()[0].endswith(f" {size}")


@pytest.mark.parametrize("tool", ("curl", "wget", "python3"))
def test_any_of_three_tools_tells_a_good_line_from_one_that_is_too_slow_and_from_none(
    tool: str, tmp_path: Path, server: str
) -> None:
    path = machine_with(tmp_path, *TOOLS, tool)
    assert seen_by(path, f"{server}/big", 1.0) == ""
    slow = seen_by(path, f"{server}/big", 1e9)
    assert slow.endswith("Mbit/s down instead of 1e+09")
    cut_off = seen_by(path, "http://127.0.0.1:9/big")
    assert cut_off == "it cannot download from files.pythonhosted.org"


def test_an_error_page_shows_that_the_line_works_and_not_how_fast(tmp_path: Path, server: str) -> None:
    path = machine_with(tmp_path, *TOOLS, "curl")
    assert seen_by(path, f"{server}/none", 1e9) == ""


@pytest.mark.parametrize(
    ("printed", "fault"),
    [
        ("down 16000000 0 2.56", ""),  # all of it, at exactly half of the speed
        ("down 16000000 0 2.57", "50 Mbit/s down instead of 100"),
        ("down 15999999 0 2.9", ""),  # not all, and sooner than it should take
        ("down 15999999 10 13", "43 Mbit/s down instead of 100"),
        ("down 1000 0 2.9", ""),
        ("down 1000 0 3", "0 Mbit/s down instead of 100"),
        ("down 0 0 9", "it cannot download from files.pythonhosted.org"),
        ("down 16000000 5 5", ""),
        ("noise\ndown 16000000 10 14\nmore", "32 Mbit/s down instead of 100"),
    ],
)
def test_a_line_is_judged_once_all_came_or_its_time_was_up(printed: str, fault: str) -> None:
    assert offer_check.fault(printed, Resources(down_mbps=100.0)) == fault


@pytest.mark.parametrize("printed", ["", "down", "down x y z", "sh: syntax error"])
def test_what_cannot_be_read_is_no_fault(printed: str) -> None:
    assert offer_check.fault(printed, Resources(down_mbps=1e9)) == ""


@pytest.mark.parametrize(
    ("spec", "needed"),
    [
        (train_job(), False),
        (train_job(resources=Resources(down_mbps=100.0)), True),
        (train_job(setup=("pip install x",)), True),
        (train_job(checkpoints=Checkpoints(push="s3://models")), True),
        (train_job(checkpoints=Checkpoints(start_from="file:///models")), False),
    ],
)
def test_a_line_is_looked_at_only_where_the_job_needs_it(spec: JobSpec, needed: bool) -> None:
    assert offer_check.is_needed(spec) is needed


def test_a_machine_that_reaches_nothing_is_given_back_and_the_next_one_trains(terminal: Terminal) -> None:
    terminal.market.offline = {"host-1"}
    end = terminal.launch("--set", "setup=[pip install x]")
    assert end.exit_code == 0, end.output
    good, bad = terminal.ledger.runs()
    assert (bad.cause, bad.host, good.host) == (Cause.HOST, "host-1", "host-2")
    assert "it cannot download from files.pythonhosted.org" in bad.detail
    assert bad.released_at is not None
    assert bad.rented_at is not None
    assert bad.released_at - bad.rented_at < 60


def test_a_machine_below_the_wanted_speed_is_given_back(terminal: Terminal) -> None:
    end = terminal.launch("--set", "resources.down_mbps=200")
    assert end.exit_code == 5
    assert "80 Mbit/s down instead of 200" in end.stderr
    assert terminal.machines() == 0


MACHINE = Instance(
    id="7",
    label="l",
    state="running",
    usd_per_hour=0.4,
    rented_at=0.0,
    extras=ExtraRates(down_usd_per_gb=0.01, up_usd_per_gb=0.01),
    down_mbps=800.0,
    up_mbps=80.0,
)
"""Its line carries 0.1 GB a second, and a tenth of that out of it."""


@pytest.mark.parametrize(
    ("down_gb", "up_gb", "rented_s", "fault"),
    [
        (0.0, 0.0, 0.0, ""),
        # For the seconds since the rent and ten more, at twice its speed.
        (2.0, 0.2, 0.0, ""),
        (2.1, 0.0, 0.0, "into the machine reads 2.1 GB, more than the 2 GB that its line can have"),
        (0.0, 0.21, 0.0, "out of the machine reads 0.21 GB, more than the 0.2 GB that its line"),
        (720.0, 0.0, 3590.0, ""),
        (721.0, 0.0, 3590.0, "more than the 720 GB that its line can have carried since the rent"),
    ],
)
def test_a_counter_above_what_the_line_carries_is_a_fault(
    down_gb: float, up_gb: float, rented_s: float, fault: str
) -> None:
    found = counter_fault(replace(MACHINE, down_gb=down_gb, up_gb=up_gb), TrafficMeasure(), rented_s)
    assert fault in found
    assert bool(found) is bool(fault)


def test_a_line_without_a_listed_speed_counts_as_a_fast_one() -> None:
    unlisted = replace(MACHINE, down_mbps=0.0, down_gb=24.0)
    assert counter_fault(unlisted, TrafficMeasure(), 0.0) == ""
    assert counter_fault(replace(unlisted, down_gb=26.0), TrafficMeasure(), 0.0)


@pytest.mark.parametrize(("down_gb", "is_fault"), [(0.0, False), (0.001, True), (0.05, False)])
def test_a_counter_that_hardly_shows_our_own_transfers_is_faulty(down_gb: float, is_fault: bool) -> None:
    own = TrafficMeasure()
    own.sent(4 * GB)
    fault = counter_fault(replace(MACHINE, down_gb=down_gb), own, 100.0)
    assert fault.endswith("GB, and vastrun itself transferred 4 GB") is is_fault


def test_what_vastrun_transferred_counts_where_the_counter_shows_less_or_is_doubted() -> None:
    own, machine = TrafficMeasure(), replace(MACHINE, down_gb=3.0, up_gb=1.0)
    own.sent(GB)
    own.received(2 * GB)
    assert counted(machine, own, is_doubted=False) == replace(machine, up_gb=2.0)
    assert counted(machine, own, is_doubted=True) == replace(machine, down_gb=1.0, up_gb=2.0)
    free = replace(machine, extras=ExtraRates())
    assert counted(free, own, is_doubted=True) is free


@pytest.mark.parametrize(
    ("own_gb", "box_mb", "limited_gb"),
    [(0.0, 0, 0.0), (0.5, 0, 0.5), (0.5, 3072, 3.0), (0.5, 9999, 5.0), (9.0, 0, 5.0)],
)
def test_limits_ignore_traffic_of_counters_alone(own_gb: float, box_mb: int, limited_gb: float) -> None:
    own = TrafficMeasure(down_gb=own_gb, up_gb=own_gb)
    own.observe(BoxStatus(at=0.0, box="running", received_mb=box_mb, sent_mb=box_mb))
    meter = confirmed(replace(RENTED, meter=Meter(down_gb=5.0, up_gb=5.0)), own).meter
    assert (meter.down_gb, meter.up_gb) == (limited_gb, limited_gb)
