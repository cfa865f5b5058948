"""What is requested of a launcher in each phase, on each provider and in each way: it is answered soon."""

import itertools
import signal
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import parts
from tests.e2e.market import LOADING, machines
from tests.e2e.terminal import JOBS, WITH_STUB_TORCH, Terminal
from tests.emulators.slurm import Slurm
from tests.emulators.vast import VastEmulator
from tests.parts import BASE_IMAGE
from tests.pty import CTRL_C
from tests.slow import slow
from tests.waiting import eventually

JOB = (str(JOBS / "script.yaml"), "--set", "ranks=1", *WITH_STUB_TORCH)
PAID = ("-y", "--set", "limits.usd=1", "--set", "resources.gpus=1")
MARKETS = ("vast", "pool", "slurm", "docker")
OPTIONS = {"vast": PAID, "docker": ("--set", f"image={BASE_IMAGE}")}
PHASES: Mapping[str, str] = {
    "plan": "outputs in",
    "rent": "  rent ",
    "boot": "  boot ",
    "ship": "  ship ",
    "train": "  train ",
    "collect": "  collect ",
}
"""What shows that it has begun."""
WAYS: Mapping[str, signal.Signals | tuple[str, ...]] = {
    "HUP": signal.SIGHUP,
    "TERM": signal.SIGTERM,
    "INT": signal.SIGINT,
    "stop": ("stop", "last"),
    "stop now": ("stop", "last", "--now"),
}
QUICK = ("local", "train", "stop")
ROWS = {
    *itertools.product(("local",), PHASES, WAYS),
    *((*place, way) for place, way in zip(itertools.product(MARKETS, PHASES), itertools.cycle(WAYS))),
}


@pytest.mark.parametrize(("provider", "phase", "way"), [QUICK, *slow(*sorted(ROWS - {QUICK}))])
def test_a_request_is_answered_and_nothing_is_left(
    provider: str, phase: str, way: str, tmp_path: Path
) -> None:
    if provider in parts.PARTS:
        parts.require(provider)
    with ExitStack() as opened:
        terminal = Terminal(tmp_path)
        opened.callback(terminal.clean)
        vast = opened.enter_context(VastEmulator(machines(4), pace=LOADING)) if provider == "vast" else None
        cluster = opened.enter_context(Slurm()) if provider == "slurm" else None
        terminal.variables |= (vast.variables if vast else {}) | (cluster.variables if cluster else {})
        if provider == "pool":
            assert terminal.type("hold", *JOB, "--provider", "local", "-d").exit_code == 0
            holder = terminal.status()["run"]["id"]
        ends = way == "HUP" or phase == "collect"
        command = ("--set", f"command=python3 script.py {'passes' if ends else 'waits'}")
        launch = terminal.start("launch", *JOB, "--provider", provider, *OPTIONS.get(provider, ()), *command)
        launch.shows(PHASES[phase])
        asked = WAYS[way]
        if isinstance(asked, signal.Signals):
            launch.send(asked)
        else:
            answered = terminal.type(*asked).err
            assert "stopping" in answered or "has already ended" in answered

        done = launch.end()

        assert "Traceback" not in done.err
        if way == "HUP":
            assert done.exit_code == 0, done.err
            assert "detaching: " in done.err or "verdict" in done.out, done.err
            assert terminal.type("wait", "last").exit_code == 0
        else:
            assert done.exit_code in ((0, 3) if phase == "collect" else (3, 130)), done.err
            assert "save a checkpoint" not in done.err or "  train " in done.err
        if provider == "pool":
            assert terminal.type("stop", holder).exit_code == 0
        eventually(lambda: not terminal.drivers(), what="the end of the driver")
        eventually(lambda: not terminal.leftovers(), what="the end of all programs")  # Slurm is slow at it
        assert not vast or not vast.instances
        if provider == "docker" and phase != "plan":
            label = f"label=io.vastrun.label=vastrun-{terminal.outputs().name}"
            assert not subprocess.check_output(("docker", "ps", "--all", "--quiet", "--filter", label))
        if cluster:
            eventually(lambda: not cluster.run("squeue", "-h"), what="the end of the job")


@pytest.mark.parametrize("phase", slow(("boot",), ("train",)))
def test_the_key_of_the_question_detaches(phase: str, terminal: Terminal) -> None:
    with terminal.sits("launch", *JOB) as window:
        window.shows(phase)
        window.press(CTRL_C)
        window.shows("detach: ")
        window.press("d")
        window.shows("continues in the background: process")
    assert terminal.type("wait", "last").exit_code == 0
    assert terminal.leftovers() == []
