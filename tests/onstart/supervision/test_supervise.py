"""The supervisor with real processes: what each way to end leaves behind."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.onstart.supervision.launches import Launcher
from tests.waiting import LONGEST_S, eventually
from vastrun.contract import layout


@pytest.mark.torch
@pytest.mark.slow
def test_a_program_that_works_is_finished_with_all_its_conditions(launch: Launcher) -> None:
    run = launch(
        """
        for step in range(1, 4):
            heart.beat(step)
            print("loss at step", step)
        (outputs / f"rank-{rank}.txt").write_text("result")
        """,
        success={"files": ["rank-*.txt"], "log": r"step \d", "steps": 3, "exit_code": 0},
    )
    outcome = run.outcome()
    assert (run.wait(), outcome.reason, outcome.steps_done) == (0, "finished", 3)
    assert [end.exit_code for end in outcome.ranks] == [0, 0]
    assert [(check.name, check.holds) for check in outcome.checks] == [
        ("files", True),
        ("log", True),
        ("steps", True),
        ("exit_code", True),
    ]
    assert {"rank0 loss at step 3", "rank1 loss at step 3"} <= set(run.log())


def test_an_exception_is_named_with_its_rank_and_the_others_are_not_blamed(launch: Launcher) -> None:
    run = launch(
        """
        heart.beat(7)
        if rank == 1:
            raise ValueError("no such grid")
        time.sleep(600)
        """
    )
    outcome = run.outcome()
    assert outcome.detail == "your program raised ValueError: no such grid (rank 1 at step 7)"
    assert [end.ended_by_us for end in outcome.ranks] == [True, False]
    assert outcome.first_failure is not None
    assert 'raise ValueError("no such grid")' in (outcome.first_failure.traceback or "")


GROUP = """
import datetime, torch
import torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=30))
try:
    for step in range(1, 1000):
        heart.beat(step)
        if rank == 1 and step == 3 and os.environ["VASTRUN_RESTART"] == "0":
            raise {raised}
        dist.all_reduce(torch.ones(1))
finally:
    dist.destroy_process_group()
    if rank == 1:
        time.sleep({late_s})  # as on a busy computer, before its traceback is written
"""


@pytest.mark.torch
@pytest.mark.parametrize(
    ("raised", "late_s", "reason"),
    [('ValueError("bad shard")', 5, "error"), ('OSError(28, "No space left on device")', 0, "disk")],
)
@pytest.mark.slow
def test_a_failure_in_a_process_group_is_that_of_its_rank_and_keeps_its_reason(
    launch: Launcher, raised: str, late_s: int, reason: str
) -> None:
    outcome = launch(GROUP.format(raised=raised, late_s=late_s)).outcome()
    assert outcome.first_failure is not None
    assert (outcome.reason, outcome.first_failure.rank) == (reason, 1), outcome.detail
    assert raised.partition("(")[0] in (outcome.first_failure.exception or "")


@pytest.mark.torch
@pytest.mark.slow
def test_a_program_in_a_process_group_without_room_restarts_when_the_job_says_so(launch: Launcher) -> None:
    raised = 'torch.OutOfMemoryError("CUDA out of memory")'
    outcome = launch(GROUP.format(raised=raised, late_s=0), restarts={"out_of_memory": 1}).outcome()
    assert [start.reason for start in outcome.starts] == ["oom", "finished"], outcome.detail


@pytest.mark.torch
@pytest.mark.slow
def test_a_crash_is_told_though_the_other_rank_ignores_sigterm_and_goes_on(launch: Launcher) -> None:
    run = launch(
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if rank == 1:
            (outputs / "crashed_at").write_text(str(time.time()))
            os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(600)
        """
    )
    outcome = run.outcome()
    assert (run.wait(), outcome.reason) == (1, "signal")
    assert outcome.first_failure is not None
    assert (outcome.first_failure.rank, outcome.first_failure.signal) == (1, "SIGSEGV")
    assert outcome.ranks[0].ended_by_us
    assert outcome.ended_at - float((run.box / "run/outputs/crashed_at").read_text()) < LONGEST_S


@pytest.mark.torch
@pytest.mark.slow
def test_a_rank_that_saves_slowly_is_not_ended_because_another_left_at_once(launch: Launcher) -> None:
    run = launch(
        """
        def save(number, frame):
            (outputs / f"asked-{rank}").write_text("once")
            signal.signal(signal.SIGTERM, lambda *_: (outputs / "asked_again").write_text("twice"))
            if rank == 0:
                time.sleep(2)
                (outputs / "saved").write_text("saved")
            os._exit(143)

        signal.signal(signal.SIGTERM, save)
        for step in range(10_000):
            heart.beat(step)
            time.sleep(0.01)
        """
    )
    run.until_steps(1)
    (run.box / layout.STOP).write_text("time_limit\n")
    outcome = run.outcome()
    assert (run.wait(), outcome.reason, outcome.stop_cause) == (143, "stopped", "time_limit")
    assert [end.exit_code for end in outcome.ranks] == [143, 143]
    assert outcome.first_failure is None
    assert sorted(path.name for path in (run.box / layout.OUTPUTS).iterdir()) == [
        "asked-0",
        "asked-1",
        "saved",
    ]


def test_sigterm_to_the_supervisor_stops_the_ranks_before_it_leaves(launch: Launcher) -> None:
    run = launch("while True: heart.beat(1); time.sleep(0.01)")
    run.until_steps(1)
    run.send(signal.SIGTERM)
    outcome = run.outcome()
    assert (run.wait(), outcome.reason, outcome.stop_cause) == (143, "stopped", "stopped")
    assert [end.signal for end in outcome.ranks] == ["SIGTERM", "SIGTERM"]
    assert run.processes() == []


@pytest.mark.torch
def test_sigkill_to_the_supervisor_leaves_no_process(launch: Launcher) -> None:
    run = launch("while True: heart.beat(1); time.sleep(0.01)")
    run.until_steps(1)
    # Supervisor, agent, the copy that waits to be the next, and for each rank its process and its program.
    assert len(run.processes()) == 7
    run.send(signal.SIGKILL)
    eventually(lambda: run.processes() == [])


@pytest.mark.torch
@pytest.mark.slow
def test_ranks_end_with_their_killed_agent_and_restart_when_the_job_says_so(launch: Launcher) -> None:
    run = launch(
        """
        if os.environ["VASTRUN_RESTART"] == "1":
            parent = Path(f"/proc/{os.getppid()}/status").read_text()
            (outputs / "agent").write_text(parent.partition("PPid:")[2].split()[0])
            sys.exit(0)
        while True: heart.beat(1); time.sleep(0.01)
        """,
        restarts={"signal": 1},
    )
    run.until_steps(1)
    spare = (run.box / layout.SPARE_AGENT).read_text()
    killed_at = time.time()
    os.kill(run.agent(), signal.SIGKILL)
    outcome = run.outcome()
    assert (outcome.reason, len(outcome.starts)) == ("finished", 2)
    first = outcome.starts[0]
    assert (first.reason, first.detail) == (
        "signal",
        "the launch agent failed after it had started the ranks: SIGKILL",
    )
    assert first.ended_at - killed_at < LONGEST_S
    assert (run.box / layout.OUTPUTS / "agent").read_text() == spare  # it had torch imported already
    assert run.processes() == []


def test_a_daemon_with_a_session_of_its_own_does_not_outlive_the_run(launch: Launcher) -> None:
    run = launch(
        """
        import subprocess
        command = [sys.executable, "-c", "import time; time.sleep(600)"]
        daemon = subprocess.Popen(["setsid", "-f", *command])
        (outputs / "started").write_text("")
        """,
        ranks=1,
    )
    assert run.outcome().reason == "finished"
    assert (run.box / layout.OUTPUTS / "started").exists()
    assert run.processes() == []


def test_leaving_with_0_before_the_first_step_proves_nothing(launch: Launcher) -> None:
    run = launch("sys.exit(0)", success={"steps": 10})
    outcome = run.outcome()
    assert (outcome.reason, outcome.final_record, outcome.steps_done) == ("finished", False, 0)
    assert [check.holds for check in outcome.checks] == [False]


def test_a_stop_before_the_ranks_were_started_ends_at_once(launch: Launcher, tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("import time; time.sleep(600)")
    run = launch("", train={"steps": 1}, command=None, env={"PYTHONPATH": str(tmp_path)})
    eventually(lambda: (run.box / layout.STATUS).exists())
    asked_at = time.monotonic()
    (run.box / layout.STOP).write_text("stopped\n")
    assert run.outcome().reason == "stopped"
    assert time.monotonic() - asked_at < LONGEST_S


def test_a_checkpoint_whose_name_is_not_unicode_is_stored_and_the_run_succeeds(launch: Launcher) -> None:
    run = launch(
        """
        Path("checkpoints").mkdir(exist_ok=True)
        with open(b"checkpoints/step_7_\\xff.pt", "wb") as file:
            file.write(b"weights")
        """,
        ranks=1,
        checkpoints={"files": "checkpoints/*"},
    )
    assert (run.wait(), run.outcome().reason) == (0, "finished")
    assert "supervisor snapshot step-000007: 1 file, 0.0 MB" in run.log()
    assert run.outcome().checkpoint is not None
