"""The line about the failure of a rank."""

from dataclasses import replace

import pytest

from tests.onstart.supervision.launches import Launcher
from vastrun.contract.outcome import RankEnd, Reason
from vastrun.onstart.supervision.failure_causes import failure_line

FAILED = RankEnd(rank=1, exit_code=3, step=7, activity="data", last_lines="almost done\nboom")
KILLED_RANK = replace(FAILED, exit_code=-11, signal="SIGSEGV")
SEGV, AT = "rank 1 was killed by SIGSEGV", " at step 7 (data)"
RAISED = replace(FAILED, exit_code=1, reason="error", exception="ValueError: boom")


@pytest.mark.parametrize(
    ("end", "reason", "training", "line"),
    [
        (KILLED_RANK, "signal", False, f"{SEGV}{AT} in libc.so.6"),
        (replace(KILLED_RANK, exit_code=139), "signal", False, f"{SEGV} (exit code 139){AT} in libc.so.6"),
        (replace(KILLED_RANK, exit_code=1), "signal", False, f"{SEGV} (exit code 1){AT} in libc.so.6"),
        (replace(KILLED_RANK, exit_code=0), "signal", False, f"{SEGV}{AT} in libc.so.6"),
        (replace(KILLED_RANK, exit_code=None), "signal", False, f"{SEGV}{AT} in libc.so.6"),
        (replace(KILLED_RANK, exception="OSError: lost"), "signal", True, f"{SEGV}{AT}: OSError: lost"),
        (RAISED, "error", False, "your program raised ValueError: boom (rank 1 at step 7 (data))"),
        (RAISED, "error", True, "rank 1 failed at step 7 (data): ValueError: boom"),
        (RAISED, "device", False, "rank 1 failed at step 7 (data): ValueError: boom"),
        (
            replace(FAILED, exit_code=0),
            "error",
            True,
            "rank 1 exited with code 0 at step 7 (data) before the training was done",
        ),
        (FAILED, "error", False, "rank 1 exited with code 3 at step 7 (data); last line: boom"),
        (RankEnd(rank=0, exit_code=3), "error", False, "rank 0 exited with code 3"),
    ],
)
def test_a_line_says_how_a_rank_ended_and_where(
    end: RankEnd, reason: Reason, training: bool, line: str
) -> None:
    assert failure_line(end, reason, training=training, crash="in libc.so.6") == line


TRACEBACK = """Traceback (most recent call last):
  File "/root/box/code/train.py", line 9, in <module>
    main()
  File "/root/box/code/parts/loop.py", line 105, in main
    assert steps % ranks == 0
           ^^^^^^^^^^^^^^^^^^
AssertionError"""


@pytest.mark.parametrize(
    ("exception", "traceback", "expected"),
    [
        ("AssertionError", TRACEBACK, "AssertionError at loop.py:105: assert steps % ranks == 0"),
        ("AssertionError: too few", TRACEBACK, "AssertionError: too few"),
        (
            "AssertionError",
            'Traceback:\n  File "<string>", line 1, in <module>',
            "AssertionError at <string>:1",
        ),
        ("AssertionError", None, "AssertionError"),
    ],
)
def test_an_exception_without_a_message_is_told_with_its_line_of_code(
    exception: str, traceback: str | None, expected: str
) -> None:
    end = RankEnd(rank=0, exit_code=1, reason="error", exception=exception, traceback=traceback)
    assert failure_line(end, "error", training=False) == f"your program raised {expected} (rank 0)"
    assert failure_line(end, "error", training=True) == f"rank 0 failed: {expected}"


LOSES = """
    import os, subprocess
    events = os.path.join(os.environ["VASTRUN_BOX"], "memory.events")
    with open(events, "w") as file:
        print("oom_kill 1", "peak 2147483648", "limit 1073741824", sep="\\n", file=file)
    subprocess.run(["sh", "-c", "kill -9 $$"], check=True)
"""


def test_a_program_whose_subprocess_was_killed_for_memory_ran_out_of_it(launch: Launcher) -> None:
    told = launch(LOSES, beating=False, ranks=1).outcome()
    assert told.reason == "oom"
    assert "SIGKILL" in told.detail
    assert "the kernel killed one of its processes: out of memory, peak memory 2.0 GiB" in told.detail
