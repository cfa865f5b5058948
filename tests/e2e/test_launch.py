"""The roads a run can take, each driven by the installed command with real ranks on this computer."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.terminal import JOBS, WITH_STUB_TORCH, Terminal
from tests.pty import CTRL_C, Pty
from tests.waiting import eventually

pytestmark = pytest.mark.torch


@pytest.mark.slow
def test_a_rank_that_segfaults_is_named_with_its_signal(terminal: Terminal) -> None:
    launch = terminal.start("launch", str(JOBS / "endless.yaml"), "--set", "restarts={}")
    launch.shows("checkpoint step-000020 saved")
    ranks = eventually(lambda: (terminal.status()["box"] or {}).get("ranks"), what="ranks with a process")
    os.kill(next(rank["pid"] for rank in ranks if rank["rank"] == 1), signal.SIGSEGV)
    done = launch.end()

    assert done.exit_code == 5
    assert "FAILED" in done.out
    why = terminal.type("why", "last").out
    assert "rank 1" in why
    assert "SIGSEGV" in why
    assert list((terminal.outputs() / "checkpoints").glob("step-*"))
    assert "step 20/" in (terminal.outputs() / "log.txt").read_text()
    assert terminal.leftovers() == []


@pytest.mark.slow
def test_a_rank_that_hangs_is_named_with_its_top_frame_and_all_stacks_come_home(terminal: Terminal) -> None:
    launch = terminal.start("launch", str(JOBS / "hangs.yaml"))
    launch.shows("checkpoint step-000005 saved")
    done = launch.end()

    assert done.exit_code == 6, done.err
    why = terminal.type("why", "last").out
    assert "rank 1" in why
    assert "faults.py" in why
    assert "wait_for_what_never_comes" in why
    for rank in (0, 1):
        assert "Thread" in (terminal.outputs() / "details" / "stacks" / f"rank-{rank}.txt").read_text()
    assert terminal.leftovers() == []


@pytest.mark.slow
def test_a_training_that_exits_0_without_a_step_is_not_a_success(terminal: Terminal) -> None:
    done = terminal.type("launch", str(JOBS / "does_nothing.yaml"))
    assert done.exit_code == 10
    assert "UNKNOWN" in done.out
    assert "0 of 30 steps" in terminal.type("why", "last").out


def test_an_own_program_that_meets_its_conditions_succeeds_and_can_print_json(terminal: Terminal) -> None:
    done = terminal.type("launch", str(JOBS / "script.yaml"), "--json")
    assert done.exit_code == 0, done.err
    assert done.json()["run"]["verdict"] == "SUCCEEDED"
    assert (terminal.outputs() / "outputs" / "result.txt").read_text() == "42\n"


def test_an_own_program_that_fails_is_a_failure_that_says_why(terminal: Terminal) -> None:
    command = ("--set", "command=python script.py exits_3", "--set", "ranks=1", *WITH_STUB_TORCH)
    done = terminal.type("launch", str(JOBS / "script.yaml"), *command)
    assert done.exit_code == 5, done.out
    assert "exit code 3" in terminal.type("why", "last").out
    assert terminal.leftovers() == []


def test_an_own_program_that_hangs_is_named_with_its_top_frame_and_its_stack_comes_home(
    terminal: Terminal,
) -> None:
    hangs = ("--set", "command=python script.py hangs", "--set", "limits.stall_s=4", "--set", "ranks=1")
    done = terminal.type("launch", str(JOBS / "script.yaml"), *hangs, *WITH_STUB_TORCH)

    assert done.exit_code == 6, done.err
    why = terminal.type("why", "last").out
    assert "rank 0 made no progress for" in why
    assert re.search(r"in code/script\.py:\d+ hangs", why)
    assert re.search(
        r"script\.py\", line \d+ in hangs", (terminal.outputs() / "details/stacks/rank-0.txt").read_text()
    )
    assert terminal.leftovers() == []


@pytest.mark.slow
def test_a_stopped_training_saves_and_another_run_continues_from_there(terminal: Terminal) -> None:
    launch = terminal.start("launch", str(JOBS / "endless.yaml"))
    launch.shows("step 5/")
    launch.send(signal.SIGINT)
    done = launch.end()

    assert done.exit_code == 3, done.err
    assert "STOPPED" in done.out
    stopped_at = terminal.outcome()["steps_done"]
    assert terminal.outcome()["checkpoint"]["step"] == stopped_at
    assert terminal.leftovers() == []

    steps = f"train.steps={stopped_at + 10}"
    alone = ("--set", steps, "--set", "ranks=1")
    done = terminal.type("launch", str(JOBS / "endless.yaml"), "--from", "last", *alone)
    assert done.exit_code == 0, done.err
    assert f"resumes after step {stopped_at}" in done.err


@pytest.mark.slow
def test_a_script_is_run_by_a_shell_and_what_it_runs_may_save_when_it_is_to_stop(terminal: Terminal) -> None:
    job = terminal.folder / "shell.yaml"
    job.write_text(
        f"name: shell\nresources: {{gpus: 0, disk_gb: 8}}\nranks: 1\nlimits: {{hours: 0.1}}\n"
        f"code: {{path: {JOBS / 'scripts'}}}\noutputs: '*.txt'\nsuccess: {{files: result.txt}}\n"
        "command: |\n"
        "  export MOOD=fine && cd . # don't trip over a quote\n"
        "  python script.py saves_when_asked\n"
        "  echo never > after.txt\n"
    )
    launch = terminal.start("launch", str(job), *WITH_STUB_TORCH)
    launch.shows("at work fine")
    launch.send(signal.SIGTERM)
    done = launch.end()

    assert done.exit_code == 3, done.err
    assert "STOPPED: stopped at your request" in done.out
    assert "rank0 saved" in done.err
    assert [path.name for path in terminal.outputs().glob("outputs/*.txt")] == ["result.txt"]


@pytest.mark.slow
def test_a_file_that_was_shipped_with_the_code_is_no_proof(terminal: Terminal) -> None:
    code = terminal.folder / "code"
    code.mkdir()
    (code / "result.txt").write_text("41\n")
    job = terminal.folder / "stale.yaml"
    job.write_text(
        "name: stale\nresources: {gpus: 0, disk_gb: 8}\nlimits: {hours: 0.1}\ncode: {path: code}\n"
        "command: echo nothing to do\nsuccess: {files: result.txt}\n"
    )
    done = terminal.type("launch", str(job), *WITH_STUB_TORCH)
    assert done.exit_code == 5, done.out
    assert "existed before the start" in done.out


@pytest.mark.slow
def test_a_script_fails_with_its_first_command_that_fails(terminal: Terminal) -> None:
    script = "command=false | true; echo all is well > result.txt"
    done = terminal.type(
        "launch", str(JOBS / "script.yaml"), "--set", script, "--set", "ranks=1", *WITH_STUB_TORCH
    )
    assert done.exit_code == 5, done.out
    assert "rank 0 exited with code 1" in done.out


@pytest.mark.parametrize("columns", [60, 100])
@pytest.mark.slow
def test_at_a_terminal_ctrl_c_asks_and_a_stopped_run_has_outputs(terminal: Terminal, columns: int) -> None:
    with lingering(terminal, columns=columns) as launch:
        launch.press(CTRL_C)
        launch.shows("Press s, d or c (c in 15 s):")
        asked = launch.lines
        assert "what should happen to this run?" in asked[-6]
        launch.shows("(c in 14 s)")
        assert launch.lines[:-1] == asked[:-1]
        launch.press("c")
        eventually(lambda: len(steps := shown_steps(launch)) > 20 and steps == list(range(1, len(steps) + 1)))

        launch.press(CTRL_C)
        launch.shows("Press s, d or c (c in 15 s):")
        launch.press("s")
        launch.shows("stopping: save a checkpoint")
        launch.press(CTRL_C)
        launch.shows("Press x or c (c in 15 s):")
        launch.press("c")
        (terminal.folder / "go").touch()
        assert launch.end() == 3
        assert "STOPPED" in launch.text
    assert len(list((terminal.outputs() / "outputs").rglob("result.txt"))) == 1
    assert terminal.leftovers() == []


@pytest.mark.slow
def test_at_a_terminal_a_run_is_one_view_that_a_question_interrupts(terminal: Terminal) -> None:
    with lingering(terminal, columns=80, view=()) as launch:
        launch.shows("rent · boot")
        launch.shows("rank0 step ")  # any: a busy launcher shows the last lines of many
        launch.press(CTRL_C)
        launch.shows("Press s, d or c")
        launch.press("s")
        (terminal.folder / "go").touch()
        assert launch.end() == 3
        assert "STOPPED" in launch.text
        assert launch.text.count("rent · boot") <= 1
        assert not any(line.startswith("plan · ") for line in launch.lines[-12:])
    assert terminal.leftovers() == []


@pytest.mark.slow
def test_only_a_key_of_its_own_destroys_a_machine_without_its_outputs(terminal: Terminal) -> None:
    with lingering(terminal, columns=80) as launch:
        launch.press(CTRL_C)
        launch.shows("Press s, d or c")
        launch.press(CTRL_C)
        launch.shows("stopping: save a checkpoint")
        launch.press(CTRL_C)
        launch.shows("Press x or c")
        launch.press("x")
        assert launch.end() == 3
    assert list(terminal.outputs().rglob("result.txt")) == []
    assert terminal.leftovers() == []


@contextmanager
def lingering(terminal: Terminal, *, columns: int, view: tuple[str, ...] = ("--plain",)) -> Iterator[Pty]:
    """A launch that has reached its first steps; when it is to stop, it waits for the file `go`."""
    sets = ("command=python script.py lingers", "ranks=1", f"env.GO={terminal.folder / 'go'}")
    options = [word for each in sets for word in ("--set", each)]
    with terminal.sits(
        "launch", str(JOBS / "script.yaml"), *view, *options, *WITH_STUB_TORCH, columns=columns
    ) as launch:
        launch.shows("step 3")
        yield launch


def shown_steps(launch: Pty) -> list[int]:
    """Of the log's lines on the screen."""
    return [int(step) for step in re.findall(r"step (\d+) \.", launch.text)]
