"""Machines taken away while they train: the next one continues from what came home or was pushed."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.market import vanish
from tests.e2e.terminal import JOBS, WITH_STUB_TORCH, Terminal
from tests.emulators.vast import VastEmulator
from tests.waiting import eventually

pytestmark = pytest.mark.torch

ON_VAST = (
    *("--provider", "vast", "-y", "--set", "limits.usd=1", "--set", "retry={lost: 1, preempted: 1}"),
    *("--set", "resources.interruptible=true"),
)
TRAINS = (str(JOBS / "waits.yaml"),)
CONTINUES = (
    *(str(JOBS / "script.yaml"), "--set", "command=python script.py continues", "--set", "ranks=1"),
    *WITH_STUB_TORCH,
)

TOO_DEAR = ("--set", "limits.usd_per_hour=0.36")
"""A bid wins at first, and none that is above the rival's."""

SAVES_ITS_OWN = (
    *(str(JOBS / "script.yaml"), "--set", "command=python script.py saves_its_own {resume:--from}"),
    *("--set", "checkpoints={files: own/*, every_s: 0.2}", "--set", "ranks=1", *WITH_STUB_TORCH),
)


def outbid(vast: VastEmulator) -> None:
    vast.faults.add("outbid")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("taken_away", "cause", "job", "checkpoint", "said"),
    [
        (vanish, "lost", CONTINUES, "step-000007", "all is well"),
        (vanish, "lost", SAVES_ITS_OWN, "step-000030", "continues after step 30"),
        (outbid, "preempted", (*TRAINS, *TOO_DEAR), "step-000020", "resumes after step 20:"),
    ],
    ids=["vanish", "own", "outbid"],
)
def test_a_training_continues_on_another_machine_after_the_saved_step(
    taken_away: Callable[[VastEmulator], None],
    cause: str,
    job: tuple[str, ...],
    checkpoint: str,
    said: str,
    rented: Terminal,
    vast: VastEmulator,
) -> None:
    launch = rented.start("launch", *job, *ON_VAST)
    launch.shows(f"checkpoint {checkpoint} downloaded")
    taken_away(vast)
    unseen_since = time.time()
    done = launch.end()

    assert done.exit_code == 0, done.err
    second, first = rented.type("status", "--json").json()["runs"]
    assert (first["cause"], second["verdict"]) == (cause, "SUCCEEDED")
    assert said in done.err
    assert len(vast.instances) == 0
    spent_usd, bill_usd = first["usd"] + second["usd"], vast.billing.total_usd()
    meter = next(iter(vast.billing.meters.values()))
    unseen_usd = (first["ended_at"] - unseen_since) / 3600 * meter.rates.gpu_usd_per_hour
    assert bill_usd * 0.99 <= spent_usd <= bill_usd * 1.01 + unseen_usd


@pytest.mark.slow
def test_a_training_that_nobody_watched_continues_from_what_its_machine_pushed(
    rented: Terminal, vast: VastEmulator, tmp_path: Path
) -> None:
    there, go = tmp_path / "there", tmp_path / "go"
    told = ("--set", "command=python script.py continues_once_told", "--set", f"env.GO={go}")
    push = ("--set", f"checkpoints.push=file://{there}")
    launch = rented.type("launch", *CONTINUES, *ON_VAST, *told, *push, "--detach")
    assert launch.exit_code == 0, launch.err
    rented.kill_drivers()
    go.touch()
    eventually(lambda: list(there.glob("*/latest.json")), what="a pushed checkpoint")
    vanish(vast)
    done = rented.type("resume", "last")

    assert done.exit_code == 0, done.err
    second, first = rented.type("status", "--json").json()["runs"]
    assert (first["cause"], second["verdict"]) == ("lost", "SUCCEEDED")
    assert f"checkpoint step-000007 fetched from file://{there}/{first['id']}" in done.err
    assert "downloaded" not in done.err
    assert len(vast.instances) == 0


@pytest.mark.slow
def test_a_run_of_an_own_program_continues_from_another_one_and_from_the_url_it_pushed_to(
    terminal: Terminal, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    push = ("--set", f"checkpoints.push=file://{there}")
    launch = terminal.start("launch", *SAVES_ITS_OWN, *push)
    launch.shows("checkpoint step-000030 downloaded")
    first = terminal.status()["run"]["id"]
    eventually((there / first / "latest.json").exists)
    assert terminal.type("stop", first).exit_code == 0
    launch.end()

    for origin in (("--from", first), ("--from-url", f"file://{there}/{first}")):
        done = terminal.type("launch", *SAVES_ITS_OWN, *origin)
        assert done.exit_code == 0, done.err
        log = (terminal.outputs() / "log.txt").read_text()
        assert "continues after step 30" in log
        assert "VASTRUN_RESUME=code/own/checkpoint-30" in log
    assert terminal.leftovers() == []
