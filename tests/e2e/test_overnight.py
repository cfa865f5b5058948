"""Runs that are left alone: their terminal is closed, their driver is killed or sleeps, and all ends well."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.terminal import JOBS, VASTRUN, WITH_STUB_TORCH, Terminal
from tests.emulators.asking import ask
from tests.emulators.vast import VastEmulator
from tests.launcher.notifications.inbox import Inbox, inbox
from tests.waiting import eventually
from vastrun.contract.records import as_json, read_json
from vastrun.launcher.ledger.presence import KillCount

pytestmark = pytest.mark.slow

SCRIPT = ("launch", str(JOBS / "script.yaml"), "--set", "ranks=1", *WITH_STUB_TORCH)
ON_VAST = ("--provider", "vast", "--set", "limits.usd=1", "-y", "--set", "resources.gpus=1")
PAUSE_S = float(os.environ.get("OVERNIGHT_PAUSE_S", "3"))
"""How long our processes are paused: 300 shows what a computer does that sleeps for five minutes."""


class Night:
    """A run that trains until it is told to finish, and whoever is notified."""

    def __init__(self, terminal: Terminal, letters: Inbox, go: Path) -> None:
        self.terminal, self.letters, self._go = terminal, letters, go
        terminal.variables["VASTRUN_NOTIFY"] = letters.url
        self.launch = (*SCRIPT, "--set", f"env.GO={go}", "--set", "command=python script.py passes_once_told")

    def driver(self) -> psutil.Process:
        """The only background driver."""
        (driver,) = self.terminal.drivers()
        return driver

    def finish(self) -> None:
        """The program comes to its end."""
        self._go.touch()

    def is_over(self) -> bool:
        """The driver has done its work."""
        return not self.terminal.drivers()

    def ends_well(self) -> None:
        """Its outputs are here, its machine is gone, its user was told once."""
        eventually(self.is_over, what="the end of the driver")
        run = self.terminal.status()["run"]
        assert (run["phase"], run["verdict"]) == ("ended", "SUCCEEDED")
        assert (self.terminal.outputs() / "outputs" / "result.txt").read_text() == "42\n"
        assert self.letters.events == ["end"]
        assert self.terminal.leftovers() == []
        assert list(self.records()) == []

    def records(self) -> Iterator[Path]:
        return (self.terminal.state / "vastrun" / "drivers").glob("*.json")


@contextmanager
def night(terminal: Terminal, tmp_path: Path) -> Iterator[Night]:
    with inbox() as letters:
        yield Night(terminal, letters, tmp_path / "go")


def type_in_shell(terminal: Terminal, *arguments: str) -> None:
    """Type the command into a shell, and close its window once the command has returned."""
    with terminal.shell() as shell:
        quoted = " ".join(f"'{argument}'" for argument in (VASTRUN, *arguments))
        shell.press(f"{quoted}; echo returned $?\r")
        shell.shows("returned 0")
        text = " ".join(shell.text.split())
        shell.hang_up()
    assert "continues in the background: process" in text
    assert "Notification when it ends: http://127.0.0.1" in text


def test_launch_d_goes_on_after_its_shell_was_closed(terminal: Terminal, tmp_path: Path) -> None:
    with night(terminal, tmp_path) as left:
        type_in_shell(terminal, *left.launch, "-d")
        driver = left.driver()
        assert driver.terminal() is None and os.getsid(driver.pid) == driver.pid
        assert "process " + str(driver.pid) in terminal.type("status", "last").out
        left.finish()
        left.ends_well()


def test_launch_whose_window_is_closed_goes_on_in_the_background(terminal: Terminal, tmp_path: Path) -> None:
    with night(terminal, tmp_path) as left:
        with terminal.sits(*left.launch) as window:
            window.shows("train")
            eventually(lambda: terminal.status()["run"]["step"] > 1, what="its second step")
            window.hang_up()
            eventually(terminal.drivers, what="a driver")
        left.finish()
        left.ends_well()


def test_a_driver_that_was_killed_is_replaced_by_the_next_command(terminal: Terminal, tmp_path: Path) -> None:
    with night(terminal, tmp_path) as left:
        assert terminal.type(*left.launch, "-d").exit_code == 0
        killed = left.driver()
        killed.kill()
        eventually(lambda: not killed.is_running() or left.is_over(), what="its end")
        status = terminal.type("status")
        assert f"(process {killed.pid}) is gone; another one replaces it: process" in status.err
        assert left.driver().pid != killed.pid
        assert terminal.type("status").err == ""
        left.finish()
        left.ends_well()


def test_a_driver_follows_a_launcher_killed_for_memory(terminal: Terminal, tmp_path: Path) -> None:
    with night(terminal, tmp_path) as left:
        launch = terminal.start(*left.launch)
        eventually(lambda: [run for run in _listed(terminal) if run["phase"] == "train"], what="a training")
        (file,) = (terminal.state / "vastrun" / "launchers").glob(f"{launch.process.pid}-*")
        if not file.read_text():
            pytest.skip("this kernel does not say what it killed")
        count = read_json(KillCount, file.read_text())
        launch.process.kill()
        launch.process.wait()
        # As if the kernel had killed one more process since the launcher began.
        file.write_text(as_json(replace(count, computer=count.computer - 1, cgroup="", in_cgroup=-1)))
        said = terminal.type("status").err
        assert f"(process {launch.process.pid}) was killed, most likely by the kernel" in said
        assert "a background driver continues it: process" in said
        assert terminal.type("status").err == ""
        assert left.driver()
        left.finish()
        left.ends_well()


def _listed(terminal: Terminal) -> Any:
    return terminal.type("status", "--json").json()["runs"]


def test_a_terminated_driver_leaves_its_run_to_the_next_one(terminal: Terminal, tmp_path: Path) -> None:
    """As at the shutdown of its computer: the run is not stopped."""
    with night(terminal, tmp_path) as left:
        assert terminal.type(*left.launch, "-d").exit_code == 0
        left.driver().send_signal(signal.SIGTERM)
        eventually(left.is_over, what="its end")
        left.finish()
        assert "is gone; another one replaces it" in terminal.type("wait", "last").err
        left.ends_well()


def test_stop_reaches_the_driver_in_the_background(terminal: Terminal, tmp_path: Path) -> None:
    with night(terminal, tmp_path) as left:
        terminal.type(*left.launch, "-d")
        assert terminal.type("stop", "last").exit_code == 0
        eventually(left.is_over, what="the end of the driver")
        assert terminal.status()["run"]["verdict"] == "STOPPED"
        assert left.letters.events == ["end"]
        assert terminal.leftovers() == []


def test_resume_d_hands_a_run_over_to_the_background(terminal: Terminal, tmp_path: Path) -> None:
    with night(terminal, tmp_path) as left:
        launch = terminal.start(*left.launch)
        launch.shows("training: step")
        assert "driven by another launcher" in terminal.type("resume", "last", "-d").err
        launch.kill()
        assert "in the background: process" in terminal.type("resume", "last", "-d").err
        left.finish()
        left.ends_well()


def test_serve_drives_a_run_whose_launcher_was_killed(terminal: Terminal, tmp_path: Path) -> None:
    with night(terminal, tmp_path) as left:
        launch = terminal.start(*left.launch)
        launch.shows("training: step")
        launch.kill()
        server = terminal.start("serve", "--driver")
        server.shows("driving ")
        left.finish()
        server.shows("ended: SUCCEEDED")
        server.send(signal.SIGTERM)
        assert server.end().exit_code == 0
        left.ends_well()


def test_a_sweep_that_was_left_runs_all_of_its_points(terminal: Terminal, tmp_path: Path) -> None:
    with night(terminal, tmp_path) as left:
        sweep = ("sweep", *left.launch[1:2], "env.MOOD=good,bad", *left.launch[2:], "--parallel", "1")
        done = terminal.type(*sweep, "-d")
        assert done.exit_code == 0, done.err
        assert "It starts the remaining points" in done.err
        assert "(process " not in terminal.type("batch", "status").err
        left.driver().kill()
        eventually(left.is_over, what="the end of the killed driver")
        left.finish()
        assert "another one replaces it" in terminal.type("batch", "status", "last").err
        eventually(left.is_over, what="the end of the driver")
        runs = terminal.type("status", "--json").json()["runs"]
        assert [run["verdict"] for run in runs] == ["SUCCEEDED", "SUCCEEDED"]
        assert left.letters.events == ["batch_end"]
        assert terminal.leftovers() == []


def test_a_sweep_whose_window_is_closed_goes_on_in_the_background(terminal: Terminal, tmp_path: Path) -> None:
    with night(terminal, tmp_path) as left:
        sweep = ("sweep", *left.launch[1:2], "env.MOOD=good,bad", *left.launch[2:], "--parallel", "1")
        launch = terminal.start(*sweep)
        eventually(lambda: terminal.type("status", "--json").json()["runs"], what="its first run")
        launch.send(signal.SIGHUP)
        assert launch.end().exit_code == 0
        assert "continues in the background: process" in launch.err
        left.finish()
        eventually(left.is_over, what="the end of the driver")
        runs = terminal.type("status", "--json").json()["runs"]
        assert [run["verdict"] for run in runs] == ["SUCCEEDED", "SUCCEEDED"]


def test_a_night_on_vast_with_a_killed_driver_and_a_computer_that_sleeps_around_the_end(
    rented: Terminal, vast: VastEmulator, tmp_path: Path
) -> None:
    with night(rented, tmp_path) as left:
        left.launch = (*left.launch, *ON_VAST)
        type_in_shell(rented, *left.launch, "-d")
        left.driver().kill()
        eventually(left.is_over, what="the end of the killed driver")
        assert "another one replaces it" in rented.type("status", "last").err
        eventually(lambda: rented.status()["run"]["step"], what="a step")
        driver = left.driver()
        driver.suspend()
        left.finish()
        began = time.monotonic()
        eventually(lambda: time.monotonic() - began > PAUSE_S, within_s=PAUSE_S + 60, what="the pause")
        assert len(vast.instances) == 1
        assert left.letters.events == []
        driver.resume()

        left.ends_well()
        assert len(vast.instances) == 0


def test_the_driver_begins_a_retry_elsewhere(rented: Terminal, vast: VastEmulator, tmp_path: Path) -> None:
    with night(rented, tmp_path) as left:
        left.launch = (*left.launch, *ON_VAST, "--set", "retry={lost: 1, preempted: 1}")
        rented.type(*left.launch, "-d")
        (first,) = vast.instances
        ask(vast, "DELETE", f"/api/v0/instances/{first.id}/", {})
        eventually(lambda: rented.status()["run"]["parent"], what="another attempt")
        left.finish()
        eventually(left.is_over, what="the end of the driver")
        assert rented.status()["run"]["verdict"] == "SUCCEEDED"
        assert left.letters.events == ["lost", "end"]
        assert len(vast.instances) == 0
