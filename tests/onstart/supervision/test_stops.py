"""Programs that are asked to stop, as real processes: what reaches them, and what their outcome says."""

import signal
from functools import partial
from typing import Any

import pytest

from tests.onstart.supervision.launches import Launched, Launcher
from tests.slow import slow
from tests.waiting import eventually
from vastrun.contract import layout

SAVES = """
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    for step in range(1, 10_000):
        heart.beat(step)
        print("step", step, flush=True)
        time.sleep(0.02)
        if asked:
            break
    (outputs / "saved.pt").write_text(str(step))
    print("saved at", step, flush=True)
    sys.exit({exit_code})
"""
"""Trains until it has SIGTERM, then saves and exits with a code."""


@pytest.fixture
def launch(launch: Launcher) -> Launcher:
    return partial(launch, ranks=1)


def stop(run: Launched, cause: str = "time_limit") -> None:
    run.until_steps(5)
    (run.box / layout.STOP).write_text(f"{cause}\n")


@pytest.mark.parametrize(
    ("cause", "exit_code", "success"),
    [
        ("time_limit", 0, {"exit_code": 0}),
        ("money_limit", 3, {"exit_code": 3}),
        *slow(("pruned", 0, {"steps": 9_999})),
    ],
)
def test_a_program_that_saves_when_asked_to_stop_was_stopped(
    launch: Launcher, cause: str, exit_code: int, success: dict[str, Any]
) -> None:
    run = launch(SAVES.format(exit_code=exit_code), success=success)
    stop(run, cause)
    outcome = run.outcome()
    assert (run.wait(), outcome.reason, outcome.stop_cause) == (143, "stopped", cause)
    assert [end.exit_code for end in outcome.ranks] == [exit_code]
    assert outcome.stop_sent_at is not None
    assert outcome.stop_sent_step is not None
    assert outcome.started_at < outcome.stop_sent_at <= outcome.ended_at
    saved_at = int((run.box / layout.OUTPUTS / "saved.pt").read_text())
    assert 5 <= outcome.stop_sent_step <= saved_at


def test_a_program_that_had_done_its_steps_before_the_stop_has_finished(launch: Launcher) -> None:
    run = launch(SAVES.format(exit_code=0), success={"steps": 5, "files": ["saved.pt"]})
    stop(run)
    outcome = run.outcome()
    assert (run.wait(), outcome.reason, outcome.stop_cause) == (0, "finished", "time_limit")
    assert outcome.stop_sent_step is not None
    assert outcome.stop_sent_step >= 5
    assert all(check.holds for check in outcome.checks)


def test_a_stop_signal_that_comes_after_the_end_does_not_change_the_exit_code(launch: Launcher) -> None:
    run = launch(SAVES.format(exit_code=0), success={"steps": 5, "files": ["saved.pt"]})
    stop(run)
    eventually((run.box / layout.OUTCOME).exists)
    while not run.has_ended():
        run.send(signal.SIGTERM)
    assert (run.wait(), run.outcome().reason) == (0, "finished")


def test_a_program_that_ended_without_a_stop_has_none_in_its_outcome(launch: Launcher) -> None:
    outcome = launch("heart.beat(3)").outcome()
    assert (outcome.reason, outcome.stop_sent_at, outcome.stop_sent_step) == ("finished", None, None)


def shell(script: str) -> list[str]:
    """A command as a job file's string becomes one."""
    return ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", f"trap 'exit 143' TERM; {script}"]


# What is printed after the stop goes into the pipe: without a reader the program would not come to save.
PRINTS_AND_SAVES = """
    import threading
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    step = 0
    while not asked.is_set():
        step += 1
        heart.beat(step)
        print("step", step, flush=True)
        time.sleep(0.02)
    for line in range(50):
        print("saving", line, flush=True)
        time.sleep(0.01)
    (outputs / "saved.pt").write_text(str(step))
    print("saved at", step, flush=True)
"""


@pytest.mark.parametrize(
    "script",
    [
        "python program.py 2>&1 | tee $VASTRUN_OUTPUTS/train.log",
        *slow(
            ("python program.py | grep --line-buffered . | sed -u s/a/a/ | tee $VASTRUN_OUTPUTS/train.log",),
            ("(export A=1; python program.py; echo end) | cat > $VASTRUN_OUTPUTS/train.log",),
            ("exec > >(tee $VASTRUN_OUTPUTS/train.log) 2>&1; A=1; python program.py; echo end",),
            ("timeout 600 python program.py | awk '{print; fflush()}' | tee $VASTRUN_OUTPUTS/train.log",),
        ),
    ],
)
def test_a_program_before_a_filter_has_sigterm_and_the_filter_reads_on(launch: Launcher, script: str) -> None:
    run = launch(PRINTS_AND_SAVES, command=shell(script), success={"files": ["saved.pt"]})
    stop(run)
    outcome = run.outcome()
    assert (outcome.reason, outcome.stop_cause) == ("stopped", "time_limit")
    assert [end.exit_code for end in outcome.ranks] == [143], "what follows in the script was not run"
    saved = (run.box / layout.OUTPUTS / "saved.pt").read_text()
    assert f"saved at {saved}" in (run.box / layout.OUTPUTS / "train.log").read_text()
    assert run.processes() == []


SAVES_ASIDE = (
    PRINTS_AND_SAVES
    + """
    print("saved at", step, file=sys.stderr, flush=True)
"""
)
READS = """
cat > reader.py <<'END'
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: open(os.environ["VASTRUN_OUTPUTS"] + "/reader", "w").close())
for line in sys.stdin:
    pass
END
python program.py | python reader.py
"""


def test_two_programs_in_a_pipeline_both_have_sigterm(launch: Launcher) -> None:
    run = launch(SAVES_ASIDE, command=shell(READS))
    stop(run)
    assert run.outcome().reason == "stopped"
    assert "saved at" in "".join(run.log())
    assert (run.box / layout.OUTPUTS / "reader").exists()


KILLS_ITSELF = """
    (outputs / "starts").open("a").write(os.environ["VASTRUN_RESTART"])
    if os.environ["VASTRUN_RESTART"] == "0":
        os.kill(os.getpid(), signal.{name})
    print("second start fine", flush=True)
"""


@pytest.mark.parametrize("name", ["SIGKILL", *slow(("SIGSEGV",), ("SIGABRT",), ("SIGTERM",))])
@pytest.mark.parametrize(
    "script",
    [
        "export A=1; python program.py; echo end",
        "python program.py | tee $VASTRUN_OUTPUTS/log",
        *slow(("bash -c 'set -e; python program.py; echo end'",)),
    ],
)
def test_a_signal_behind_a_shell_is_restarted_as_a_signal(launch: Launcher, script: str, name: str) -> None:
    run = launch(
        KILLS_ITSELF.format(name=name),
        command=shell(script),
        restarts={"signal": 2},
        success={"log": "second start fine"},
    )
    outcome = run.outcome()
    assert outcome.reason == "finished"
    assert [start.reason for start in outcome.starts] == ["signal", "finished"]
    assert f"killed by {name} (exit code" in outcome.starts[0].detail


def test_a_signal_behind_a_shell_that_the_job_does_not_restart_is_the_cause(launch: Launcher) -> None:
    outcome = launch(KILLS_ITSELF.format(name="SIGKILL"), command=shell("python program.py; true")).outcome()
    assert (outcome.reason, outcome.detail) == ("signal", "rank 0 was killed by SIGKILL (exit code 137)")


def test_a_program_behind_a_shell_killed_for_memory_is_reported_with_its_peak(launch: Launcher) -> None:
    # As who holds the machine does: it counts the kill, then kills.
    eats = """
        events = outputs.parents[1] / "memory.events"
        events.write_text(f"oom_kill 1\\npeak {5 << 30}\\nlimit {4 << 30}\\n")
        os.kill(os.getpid(), signal.SIGKILL)
    """
    run = launch(eats, command=shell("python program.py; true"), restarts={"signal": 2})
    outcome = run.outcome()
    assert (outcome.reason, len(outcome.starts)) == ("oom", 1)
    assert outcome.detail.endswith("the kernel killed it: out of memory, peak memory 5.0 GiB of 4.0 GiB")


def test_a_program_that_succeeds_in_spite_of_tracebacks_has_them_in_its_outcome(launch: Launcher) -> None:
    saver = """
        import threading
        def save():
            open("/dev/full", "w").write("x" * 100_000)
        for _ in range(3):
            thread = threading.Thread(target=save)
            thread.start()
            thread.join()
    """
    outcome = launch(saver, command=["python", "program.py"], ranks=1).outcome()
    assert outcome.reason == "finished"
    (said,) = outcome.printed_errors
    assert "OSError: [Errno 28]" in said
    assert "traceback" in said


def test_a_launcher_within_several_ranks_is_named(launch: Launcher) -> None:
    two = "for r in 0 1; do MY_RANK=$r python program.py & done; wait"
    run = launch("time.sleep(2.5)", command=shell(two), ranks=2)
    assert run.outcome().reason == "finished"
    (warning,) = (line for line in run.log() if "WARNING" in line)
    assert run.outcome().nested_ranks in warning
    assert "2 ranks may mean 2 whole trainings" in warning
    assert "MY_RANK=0, 1" in warning


@pytest.mark.slow
def test_a_program_that_hangs_before_a_filter_is_named_with_its_frame(launch: Launcher) -> None:
    find_stuck = """
        import time
        def stuck():
            time.sleep(600)
        stuck()
    """
    command = shell("python program.py | tee $VASTRUN_OUTPUTS/log")
    outcome = launch(find_stuck, beating=False, command=command, start_s=2).outcome()
    assert outcome.hang is not None
    assert outcome.hang.frame.endswith("stuck")
