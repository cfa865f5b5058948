"""Machines taken away while they train: the next one continues from what came home or was pushed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.terminal import JOBS, ON_LEAN, Terminal
from tests.emulators.asking import ask
from tests.emulators.vast import VastEmulator
from tests.slow import slow
from tests.waiting import eventually

pytestmark = pytest.mark.torch

LAUNCH = (
    *("launch", str(JOBS / "waits.yaml"), "--provider", "vast", "-y"),
    *("--set", "limits.usd=1", "--set", "retry={lost: 1, preempted: 1}"),
    *("--set", "resources.interruptible=true"),
)


def vanish(vast: VastEmulator) -> None:
    for instance in list(vast.instances):
        ask(vast, "DELETE", f"/api/v0/instances/{instance.id}/", {})


def outbid(vast: VastEmulator) -> None:
    vast.faults.add("outbid")


@pytest.mark.parametrize(("taken_away", "cause"), [(vanish, "lost"), *slow((outbid, "preempted"))])
def test_a_training_continues_on_another_machine_after_the_saved_step(
    taken_away: Callable[[VastEmulator], None], cause: str, rented: Terminal, vast: VastEmulator
) -> None:
    launch = rented.start(*LAUNCH)
    launch.shows("checkpoint step-000020 came home")
    taken_away(vast)
    done = launch.end()

    assert done.exit_code == 0, done.err
    second, first = rented.type("status", "--json").json()["runs"]
    assert (first["cause"], second["verdict"]) == (cause, "SUCCEEDED")
    assert "resumes after step 20:" in done.err
    assert len(vast.instances) == 0
    spent_usd = first["usd"] + second["usd"]
    assert spent_usd == pytest.approx(vast.billing.total_usd(), rel=0.25)


UNWATCHED = (
    *("launch", str(JOBS / "script.yaml"), "--provider", "vast", "-y", "--detach", *ON_LEAN),
    *("--set", "command=python script.py continues", "--set", "ranks=1"),
    *("--set", "limits.usd=1", "--set", "retry.lost=1"),
)


def test_a_training_that_nobody_watched_continues_from_what_its_machine_pushed(
    rented: Terminal, vast: VastEmulator, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    launch = rented.type(*UNWATCHED, "--set", f"checkpoints.push=file://{there}")
    assert launch.exit_code == 0, launch.err
    eventually(lambda: list(there.glob("*/latest.json")), what="a pushed checkpoint")
    vanish(vast)
    done = rented.type("resume", "last")

    assert done.exit_code == 0, done.err
    second, first = rented.type("status", "--json").json()["runs"]
    assert (first["cause"], second["verdict"]) == ("lost", "SUCCEEDED")
    assert f"checkpoint step-000007 fetched from file://{there}/{first['id']}" in done.err
    assert "came home" not in done.err
    assert len(vast.instances) == 0
