"""The road to Vast and back from a Mac, as far as Linux can play one (mac/).

The boxes stay Linux: the emulator starts them, not the launcher.
"""

from __future__ import annotations

import signal

import pytest

from tests.e2e.terminal import JOBS, WITH_STUB_TORCH, Terminal
from tests.emulators.vast import VastEmulator

JOB = (str(JOBS / "script.yaml"), "--set", "ranks=1", *WITH_STUB_TORCH)
ON_VAST = ("--provider", "vast", "--set", "limits.usd=1", "-y")
WAITS = ("launch", *JOB, *ON_VAST, "--set", "command=python script.py waits")


@pytest.mark.slow
def test_a_job_is_planned_and_trained_on_vast_and_looked_at(renting: Terminal, vast: VastEmulator) -> None:
    planned = renting.type("plan", *JOB, *ON_VAST[:-1])
    assert planned.exit_code == 0, planned.err

    done = renting.type("launch", *JOB, *ON_VAST)

    assert done.exit_code == 0, done.err
    assert "SUCCEEDED" in done.out
    assert len(vast.instances) == 0
    assert renting.status()["run"]["verdict"] == "SUCCEEDED"
    assert "all is well" in renting.type("logs", "last").out
    assert (renting.outputs() / "outputs" / "result.txt").read_text() == "42\n"
    for command in (
        ("why", "last"),
        ("cost", "last"),
        ("hosts",),
        ("status",),
        ("reap", "--provider", "vast"),
    ):
        looked = renting.type(*command)
        assert looked.exit_code == 0, looked.err


@pytest.mark.slow
def test_a_living_launcher_keeps_its_run_and_a_killed_one_loses_it(
    renting: Terminal, vast: VastEmulator
) -> None:
    first = renting.start(*WAITS)
    first.shows("step 3")
    second = renting.type("resume", "last")
    assert (second.exit_code, str(first.process.pid) in second.err) == (1, True), second.err

    first.kill()
    third = renting.start("resume", "last")
    third.shows("step ")
    third.send(signal.SIGINT)

    assert third.end().exit_code == 3
    assert len(vast.instances) == 0
