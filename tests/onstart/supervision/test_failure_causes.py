"""What the measurements of a machine prove about a failure, in their order, and the line on it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.onstart.supervision.concluding import exits, outcome, raised
from tests.onstart.supervision.launches import Launcher
from vastrun.contract import layout
from vastrun.contract.outcome import FileSystem, Hang, MachineReading, Outcome, RankEnd, Reason
from vastrun.onstart.supervision.failure_causes import failure_line

DISK = FileSystem(path="the disk", size=100_000_000_000, free=50_000_000_000)
SHM = FileSystem(path="/dev/shm", size=64_000_000, free=64_000_000, in_memory=True)
NO_SPACE = ("RuntimeError: unable to write to file </torch_7>: No space left on device (28)", "RuntimeError")
NO_GPU = ("RuntimeError: No CUDA GPUs are available", "RuntimeError")
RESET = (
    "ConnectionResetError: [Errno 104] Connection reset by peer",
    "ConnectionResetError",
    "ConnectionError",
)
TEXT = ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. ", "RuntimeError")
BUS_ERROR = ("RuntimeError: a worker is gone", "RuntimeError")
VALUE = ("ValueError: boom", "ValueError")
GONE = {"unreachable": ("hub:443",)}


@pytest.mark.parametrize(
    ("error", "measured", "reason", "fact"),
    [
        (VALUE, {}, "error", ""),
        (VALUE, {"memory_killed_at": 9.0}, "oom", "the kernel killed one of its processes: out of memory"),
        # A kill somewhere on the computer counts for a program that noticed one.
        (VALUE, {"memory_killed": True}, "error", ""),
        (BUS_ERROR, {"memory_killed": True}, "oom", "out of memory"),
        (BUS_ERROR, {}, "signal", "process 7 was killed by SIGBUS"),
        (TEXT, {"memory_killed": True}, "error", ""),
        (
            BUS_ERROR,
            {"file_systems": (DISK, replace(SHM, full_at=9.0))},
            "oom",
            "/dev/shm (0.064 GB) was full",
        ),
        (VALUE, {"file_systems": (replace(DISK, full_at=9.0), SHM)}, "disk", "the disk (100 GB) was full"),
        (NO_SPACE, {}, "disk", ""),
        (NO_SPACE, {"file_systems": (DISK, SHM)}, "oom", "/dev/shm has the least room, 0.064 of 0.064 GB"),
        (NO_SPACE, {"file_systems": (replace(DISK, free=1), SHM)}, "disk", "the disk has the least room"),
        (NO_GPU, {}, "error", ""),
        (NO_GPU, {"gpu_faults": ()}, "error", ""),
        (NO_GPU, {"gpu_faults": ("GPU 0: gone",)}, "device", "GPU 0: gone"),
        (RESET, {}, "error", ""),
        (RESET, GONE, "network", "this machine no longer reaches hub:443, which it did at the start"),
        (RESET, {**GONE, "reachable": ("index:443",)}, "error", ""),
        (VALUE, GONE, "error", ""),
        (None, GONE, "network", "no longer reaches hub:443"),
    ],
)
def test_a_reason_needs_a_measurement(
    box: Path, error: tuple[str, ...] | None, measured: dict[str, Any], reason: str, fact: str
) -> None:
    if error:
        raised(box, 0, *error, **({"child": 7, "exit_code": -7} if error is BUS_ERROR else {}))
    told = outcome(box, replace(exits(1), reading=MachineReading(at=11.0, **measured)))
    assert told.reason == reason
    assert fact in told.detail
    assert told.reading is not None
    assert Outcome.from_json(told.to_json()) == told


@pytest.mark.parametrize(
    ("module", "torch", "driver", "reason"),
    [
        ("torch.cuda", "13.0", "12.8", "device"),
        ("torch.cuda", "13.0", "13.0", "error"),
        ("torch.cuda", "12.8", "12.4", "error"),  # within a major version it works
        ("torch.cuda", "13.0", "", "error"),
        ("torch.cuda", "no number", "12.8", "error"),
        ("__main__", "13.0", "12.8", "error"),
    ],
)
def test_a_driver_is_too_old_where_the_programs_torch_failed_to_use_it(
    box: Path, module: str, torch: str, driver: str, reason: str
) -> None:
    raised(box, 0, *NO_GPU, module=module, torch_cuda=torch)
    reading = MachineReading(at=11.0, gpu_faults=(), driver_cuda=driver)
    told = outcome(box, replace(exits(1), reading=reading))
    assert told.reason == reason
    assert ("the driver supports CUDA 12.8, and this torch needs 13.0" in told.detail) is (reason == "device")


@pytest.mark.parametrize(("at", "reason"), [(205.0, "oom"), (205.1, "error"), (80.0, "oom"), (79.9, "error")])
def test_what_was_measured_counts_from_5_seconds_before_until_120_seconds_after(
    box: Path, at: float, reason: str
) -> None:
    observed = exits(1)
    late = (replace(observed.processes[0], ended_at=200.0),)
    reading = MachineReading(at=201.0, memory_killed_at=at)
    assert outcome(box, replace(observed, processes=late, reading=reading)).reason == reason
    reading = MachineReading(at=201.0, file_systems=(replace(SHM, full_at=at),))
    assert outcome(box, replace(observed, processes=late, reading=reading)).reason == reason


def test_a_rank_that_left_before_the_others_had_done_their_work_is_to_blame(box: Path) -> None:
    raised(box, 1, "RuntimeError: [gloo/pair.cc] Connection closed by peer", "RuntimeError")
    told = outcome(box, exits(0, 1))
    assert told.reason == "error"
    assert told.detail.endswith("; rank 0 had exited with code 0: the ranks did not do the same work")


def test_a_hang_names_the_ranks_that_were_done(box: Path) -> None:
    hang = Hang(rank=1, step=3, activity="", stalled_s=40.0, frame="", stacks=())
    told = outcome(box, replace(exits(0, -9), hang=hang, killed=frozenset({1})))
    assert told.reason == "hang"
    assert "; rank 0 had exited with code 0: the ranks did not do the same work" in told.detail


def test_what_a_program_knows_better_is_not_overruled(box: Path) -> None:
    (box / layout.RANKS / "rank-0.json").write_text(
        '{"reason": "diverged", "exception": "DivergedError: NaN"}'
    )
    full = MachineReading(at=11.0, file_systems=(replace(DISK, full_at=10.0),))
    assert outcome(box, replace(exits(1), reading=full)).reason == "diverged"


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
