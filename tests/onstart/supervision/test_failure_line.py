"""A rank that fails because a process of its was killed for want of memory is no user error."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.onstart.supervision.concluding import exits, outcome
from tests.onstart.supervision.launches import Launched
from vastrun.contract import layout
from vastrun.contract.outcome import RankEnd, Reason
from vastrun.onstart.supervision.failure_line import (
    failure_line,
    lost_a_process,
    lost_process_line,
    peak_text,
    where_text,
)
from vastrun.onstart.supervision.memory_counters import MemoryUse

FAILED = RankEnd(rank=1, exit_code=3, step=7, activity="data", last_lines="almost done\nboom")
KILLED_RANK = replace(FAILED, exit_code=-11, signal="SIGSEGV")
RAISED = replace(FAILED, exit_code=1, exception="ValueError: boom")


@pytest.mark.parametrize(
    ("end", "reason", "training", "line"),
    [
        (
            replace(KILLED_RANK, exit_code=-9, signal="SIGKILL"),
            "oom",
            False,
            "rank 1 was killed by the kernel (out of memory) at step 7 (data), 12 GB at most",
        ),
        (KILLED_RANK, "signal", False, "rank 1 was killed by SIGSEGV at step 7 (data) in libc.so.6"),
        (
            replace(KILLED_RANK, exit_code=139),
            "signal",
            False,
            "rank 1 was killed by SIGSEGV (exit code 139) at step 7 (data) in libc.so.6",
        ),
        (
            replace(KILLED_RANK, exit_code=1),
            "signal",
            False,
            "rank 1 was killed by SIGSEGV (exit code 1) at step 7 (data) in libc.so.6",
        ),
        (
            replace(KILLED_RANK, exit_code=0),
            "signal",
            False,
            "rank 1 was killed by SIGSEGV at step 7 (data) in libc.so.6",
        ),
        (
            replace(KILLED_RANK, exit_code=None),
            "signal",
            False,
            "rank 1 was killed by SIGSEGV at step 7 (data) in libc.so.6",
        ),
        (
            replace(KILLED_RANK, exception="RuntimeError: lost"),
            "signal",
            True,
            "rank 1 was killed by SIGSEGV at step 7 (data): RuntimeError: lost",
        ),
        (
            RAISED,
            "error",
            False,
            "your program raised ValueError: boom (rank 1 at step 7 (data)); last line: boom",
        ),
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
    found = failure_line(end, reason, training=training, peak=", 12 GB at most", crash="in libc.so.6")
    assert found == line


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
    end = RankEnd(rank=0, exit_code=1, exception=exception, traceback=traceback)
    assert failure_line(end, "error", training=False, peak="") == f"your program raised {expected} (rank 0)"
    assert failure_line(end, "error", training=True, peak="") == f"rank 0 failed: {expected}"


@pytest.mark.parametrize(
    ("step", "activity", "where"),
    [
        (0, "", ""),
        (0, "setup", " at step 0 (setup)"),
        (0, "step", " at step 0"),
        (7, "", " at step 7"),
        (7, "step", " at step 7"),
        (7, "data", " at step 7 (data)"),
    ],
)
def test_where_a_rank_ended_is_its_step_and_what_it_did_unless_that_is_a_step(
    step: int, activity: str, where: str
) -> None:
    assert where_text(step, activity) == where


@pytest.mark.parametrize(
    ("use", "peak_bytes", "text"),
    [
        (None, None, ""),
        (None, 0, ""),
        (None, 3 << 30, "; it used at most 3.0 GiB"),
        (MemoryUse(peak=2 << 30, limit=4 << 30), 3 << 30, "; peak memory 2.0 GiB of 4.0 GiB"),
    ],
)
def test_the_peak_of_all_processes_is_told_rather_than_that_of_the_rank(
    use: MemoryUse | None, peak_bytes: int | None, text: str
) -> None:
    assert peak_text(use, peak_bytes) == text


def test_a_line_on_a_process_that_the_kernel_killed_says_what_followed() -> None:
    killed = "the kernel killed a process of rank 1 (out of memory) at step 7 (data), 12 GB at most; then "
    assert lost_process_line(RAISED, ", 12 GB at most") == killed + "ValueError: boom"
    assert lost_process_line(FAILED, ", 12 GB at most") == killed + "it exited with code 3"


GONE = "RuntimeError: DataLoader worker (pid(s) 71) exited unexpectedly"
KILLED = "subprocess.CalledProcessError: Command 'tool' died with <Signals.SIGKILL: 9>."
POOL = "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly"


@pytest.mark.parametrize(
    ("reason", "exception", "at", "killed_at", "killed_elsewhere", "lost"),
    [
        ("error", KILLED, 100.0, 99.0, True, True),
        ("error", "EOFError: Ran out of input", 100.0, 99.0, True, True),
        ("error", None, 100.0, 99.0, True, True),
        ("signal", GONE, 100.0, 99.0, True, True),
        ("error", KILLED, 100.0, 104.0, True, True),
        # From 5 seconds before the kill was recorded until 120 seconds after it.
        ("error", "ValueError: boom", 94.0, 99.0, True, True),
        ("error", "ValueError: boom", 93.9, 99.0, True, False),
        ("error", "ValueError: boom", 219.0, 99.0, True, True),
        ("error", "ValueError: boom", 219.1, 99.0, True, False),
        ("error", KILLED, 100.0, None, True, True),
        ("signal", GONE, 100.0, None, True, True),
        ("error", POOL, 100.0, None, True, True),
        ("error", "ValueError: boom", 100.0, None, True, False),
        ("error", "KeyError: 'skilled'", 100.0, None, True, False),
        ("error", KILLED, 100.0, None, False, False),
        ("disk", KILLED, 100.0, 99.0, True, False),
        ("data", KILLED, 100.0, 99.0, True, False),
        ("oom", KILLED, 100.0, 99.0, True, False),
    ],
)
def test_a_failure_soon_after_a_kill_follows_from_it(
    reason: Reason,
    exception: str | None,
    at: float,
    killed_at: float | None,
    killed_elsewhere: bool,
    lost: bool,
) -> None:
    end = RankEnd(rank=0, exit_code=1, exception=exception)
    kills = {"killed_at": killed_at, "killed_elsewhere": killed_elsewhere}
    assert lost_a_process(reason, end, at, **kills) is lost  # type: ignore[arg-type]


def test_a_rank_that_exited_0_or_was_killed_itself_lost_no_process() -> None:
    for end in (RankEnd(rank=0, exit_code=0), RankEnd(rank=0, exit_code=-11, signal="SIGSEGV")):
        assert not lost_a_process("error", end, 100.0, killed_at=100.0, killed_elsewhere=True)


def test_the_outcome_names_the_kill_the_peak_and_what_was_raised(tmp_path: Path) -> None:
    for folder in (layout.RANKS, layout.RAW_LOGS):
        (tmp_path / folder).mkdir(parents=True)
    log = f"Traceback (most recent call last):\n  File 'a.py', line 1, in <module>\n{KILLED}\n"
    (tmp_path / layout.RAW_LOGS / "rank-0.log").write_text(log)
    use = MemoryUse(peak=12_777_000_000, limit=12_884_901_888)
    observed = replace(exits(1), memory_killed=True, memory_killed_at=9.0, memory_use=use)

    told = outcome(tmp_path, observed)

    assert told.reason == "oom"
    assert told.detail == (
        "the kernel killed a process of rank 0 (out of memory); peak memory 11.9 GiB of 12.0 GiB; "
        f"then {KILLED}"
    )
    assert outcome(tmp_path, replace(observed, memory_killed_at=None, memory_killed=False)).reason == "error"


LOSES = """
    import os, subprocess
    events = os.path.join(os.environ["VASTRUN_BOX"], "memory.events")
    with open(events, "w") as file:
        print("oom_kill 1", "peak 2147483648", "limit 1073741824", sep="\\n", file=file)
    subprocess.run(["sh", "-c", "kill -9 $$"], check=True)
"""


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Launched]:
    run = Launched(tmp_path / "box", LOSES, beating=False, ranks=1)
    yield run
    run.end()


def test_a_supervised_program_whose_subprocess_was_killed_for_want_of_memory_ran_out_of_it(
    launched: Launched,
) -> None:
    told = launched.outcome()
    assert told.reason == "oom"
    assert told.detail.startswith(
        "the kernel killed a process of rank 0 (out of memory); peak memory 2.0 GiB"
    )
    assert "SIGKILL" in told.detail
