"""`wait`: the verdict of a run as an exit code, and a time after which nobody waits."""

from __future__ import annotations

from pathlib import Path

from tests.launcher.terminal import CRASH, Terminal


def test_wait_brings_a_detached_run_to_its_end_and_gives_its_verdict(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, CRASH)
    terminal.launch("--detach")
    assert terminal.type("wait", "last").exit_code == 5
    assert terminal.machines() == 0


def test_wait_gives_up_after_its_time_and_leaves_the_run_alone(terminal: Terminal) -> None:
    terminal.launch("--detach")
    end = terminal.type("wait", "last", "--timeout", "5s")
    assert end.exit_code == 124
    assert terminal.machines() == 1


def test_ctrl_c_in_wait_leaves_the_run_alone(terminal: Terminal) -> None:
    terminal.launch("--detach")
    terminal.press(after_s=2)
    end = terminal.type("wait", "last")
    assert "detaching" in end.stderr
    assert terminal.machines() == 1
