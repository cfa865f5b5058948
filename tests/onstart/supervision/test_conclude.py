"""What is said of a training that did not go well."""

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.onstart.supervision.concluding import exits, outcome
from vastrun.contract import layout
from vastrun.contract.outcome import Hang, Outcome
from vastrun.onstart.supervision.memory_counters import MemoryUse

_NCCL = "[rank1]:[E1124 18:37:01.838048403 ProcessGroupNCCL.cpp:2057] [PG ID 0 PG GUID 0(default_pg) Rank 1] "
WATCHDOG = f"""\
[rank1]:[E1124 18:37:01.833637681 ProcessGroupNCCL.cpp:744] [Rank 1] Some NCCL operations have failed.
{_NCCL}Process group watchdog thread terminated with exception: %s
Exception raised from checkTimeout at /pytorch/ProcessGroupNCCL.cpp:686 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x80 (0x7f8b1257cb80 in libc10.so)

terminate called after throwing an instance of 'c10::DistBackendError'
Fatal Python error: Aborted
"""
"""What torch 2.7 prints on a GPU, shortened."""
LEFT = f"{_NCCL}Terminating the process after attempting to dump debug info, due to %s.\n"
TIMEOUT = (
    "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, "
    "NumelOut=1, Timeout(ms)=60000) ran for 60004 milliseconds before timing out."
)

HANG = Hang(rank=1, step=30, activity="data", stalled_s=12.3, frame="code/slow.py:9 wait", stacks=())


def test_a_hang_is_told_before_anything_that_came_of_it(box: Path) -> None:
    observed = replace(exits(-6, -6), hang=HANG, killed=frozenset({0, 1}))
    told = outcome(box, observed)
    assert told.reason == "hang"
    assert told.detail == "rank 1 made no progress for 12 s at step 30 (data), in code/slow.py:9 wait"
    assert told.first_failure is None


@pytest.mark.parametrize(
    ("changes", "after"),
    [
        ({}, " at step 30 (data), in code/slow.py:9 wait"),
        ({"frame": ""}, " at step 30 (data)"),
        ({"frame": "", "activity": "step"}, " at step 30"),
        ({"frame": "", "step": 0, "activity": ""}, ""),
        (
            {"in_collective": True, "waits": ("rank 1 in backward",)},
            " at step 30 (data), in code/slow.py:9 wait",
        ),
        ({"waits": ("rank 0 in loss", "rank 1 in backward")}, " at step 30 (data), in code/slow.py:9 wait"),
        (
            {"in_collective": True, "waits": ("rank 0 in loss", "rank 1 in backward")},
            " at step 30 (data), in code/slow.py:9 wait; waiting: rank 0 in loss, rank 1 in backward",
        ),
    ],
)
def test_a_hang_says_where_it_was_and_what_ranks_waited_in_if_all_waited(
    box: Path, changes: dict[str, Any], after: str
) -> None:
    told = outcome(box, replace(exits(-6, -6), hang=replace(HANG, **changes), killed=frozenset({0, 1})))
    assert told.detail == f"rank 1 made no progress for 12 s{after}"


EARLY = "rank 0 exited with code 0 before the training was done"


@pytest.mark.parametrize(
    ("codes", "training", "reason", "activity", "detail"),
    [
        ((0, 1), True, None, "", EARLY),
        ((0, 1), True, "error", "", EARLY),
        ((0, 1), True, "finished", "", "rank 1 exited with code 1"),
        ((0, 1), True, None, "done", "rank 1 exited with code 1"),
        ((0, 1), True, None, "forward", EARLY.replace("code 0", "code 0 at step 7 (forward)")),
        ((0, 1), False, None, "", "rank 1 exited with code 1"),
        # All exited 0: they have finished.
        ((0, 0), True, None, "", "all 2 ranks exited 0"),
    ],
)
def test_a_rank_of_the_trainer_that_exits_0_before_it_has_finished_is_the_failure_of_the_others(
    box: Path, codes: tuple[int, int], training: bool, reason: str | None, activity: str, detail: str
) -> None:
    if reason:
        (box / layout.RANKS / "rank-0.json").write_text(json.dumps({"reason": reason, "step": 0}))
    if activity:
        (box / layout.HEARTBEATS).mkdir(parents=True)
        (box / layout.HEARTBEATS / "rank-0").write_text(f"7 {activity} 100.000 1000\n")
    assert outcome(box, replace(exits(*codes), training=training)).detail == detail


LOST_PEER = {"reason": "communication", "exception": "RuntimeError: connection closed", "step": 7}


@pytest.mark.parametrize(
    ("codes", "changes", "record", "reason", "detail"),
    [
        ((0,), {}, None, "finished", "the rank exited 0"),
        ((0, 0), {}, None, "finished", "all 2 ranks exited 0"),
        ((None, None), {"lost": (1, 3)}, None, "communication", "node 1, 3 can no longer be reached"),
        ((1, -15), {"lost": (1,)}, LOST_PEER, "communication", "node 1 can no longer be reached"),
        (
            (-9, -9),
            {"lost": (1,), "killed": frozenset({0, 1})},
            None,
            "communication",
            "node 1 can no longer",
        ),
        ((3, -15), {"lost": (1,)}, None, "error", "rank 0 exited with code 3"),
        ((0, 0), {"stop_cause": "stopped"}, None, "finished", "all 2 ranks exited 0"),
        (
            (None, None),
            {"agent_exit": -9, "memory_killed": True},
            None,
            "oom",
            "the launch agent failed after it had started the ranks: SIGKILL",
        ),
        (
            (None, None),
            {"agent_exit": -9},
            None,
            "signal",
            "the launch agent failed after it had started the ranks: SIGKILL",
        ),
        (
            (None, None),
            {"agent_exit": 1, "memory_killed": True},
            None,
            "error",
            "the launch agent failed after it had started the ranks: exit code 1",
        ),
        (
            (None, None),
            {"agent_exit": 1, "processes": ()},
            None,
            "error",
            "the launch agent failed before any rank started: exit code 1",
        ),
    ],
)
def test_what_is_no_failure_of_a_rank_has_its_own_line(
    box: Path,
    codes: tuple[int | None, ...],
    changes: dict[str, Any],
    record: dict[str, Any] | None,
    reason: str,
    detail: str,
) -> None:
    if record is not None:
        (box / layout.RANKS / "rank-0.json").write_text(json.dumps(record))
    told = outcome(box, replace(exits(*codes), **changes))
    assert told.reason == reason
    assert told.detail.startswith(detail)
    assert not any(end.ended_by_us for end in told.ranks if end.exit_code is None)


def test_a_rank_killed_by_the_kernel_ran_out_of_memory(box: Path) -> None:
    told = outcome(box, replace(exits(-signal.SIGTERM, -signal.SIGKILL), memory_killed=True))
    assert (told.reason, told.detail) == ("oom", "rank 1 was killed by the kernel (out of memory)")


def test_a_kill_for_want_of_memory_tells_the_peak(box: Path) -> None:
    use = MemoryUse(peak=12_777_000_000, limit=12_884_901_888)
    in_all = replace(exits(137), memory_killed=True, memory_use=use)
    by_itself = replace(in_all.processes[0], peak_bytes=3 << 30)
    alone = replace(in_all, memory_use=None, processes=(by_itself,))
    for observed, peak in ((in_all, "peak memory 11.9 GiB of 12.0 GiB"), (alone, "it used at most 3.0 GiB")):
        told = outcome(box, observed)
        assert told.reason == "oom"
        assert told.detail == f"rank 0 was killed by the kernel (out of memory); {peak}"


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (137, "SIGKILL"),
        (143, "SIGTERM"),
        (139, "SIGSEGV"),
        (134, "SIGABRT"),
        (135, "SIGBUS"),
        (136, "SIGFPE"),
    ],
)
def test_what_a_shell_says_of_a_killed_program_counts_as_that_signal(box: Path, code: int, name: str) -> None:
    told = outcome(box, exits(code))
    assert (told.reason, told.detail) == ("signal", f"rank 0 was killed by {name} (exit code {code})")
    assert told.first_failure is not None
    assert (told.first_failure.exit_code, told.first_failure.signal) == (code, name)


@pytest.mark.parametrize("code", [128, 130, 141, 129, 192, 255, 9, 15])
def test_other_exit_codes_are_the_programs_own(box: Path, code: int) -> None:
    told = outcome(box, exits(code))
    assert (told.reason, told.detail) == ("error", f"rank 0 exited with code {code}")


def test_an_abort_behind_a_shell_is_read_in_its_log(box: Path) -> None:
    (box / layout.RAW_LOGS / "rank-0.log").write_text(WATCHDOG % TIMEOUT)
    told = outcome(box, exits(134))
    assert told.reason == "communication"
    assert "timeout" in told.detail


def test_the_onboard_trainer_has_no_shell(box: Path) -> None:
    told = outcome(box, replace(exits(137), training=True))
    assert (told.reason, told.detail) == ("error", "rank 0 exited with code 137")


def test_a_failure_nobody_could_write_about_is_the_full_disks(box: Path) -> None:
    told = outcome(box, replace(exits(1, -signal.SIGTERM), disk_full=True))
    assert (told.reason, told.detail) == ("disk", "rank 0 exited with code 1; the disk is full")


def test_an_exception_is_only_read_from_the_log_of_a_program_that_left_with_1(box: Path) -> None:
    caught = "Traceback (most recent call last):\n  File 'x'\nValueError: caught and printed\n"
    (box / layout.RAW_LOGS / "rank-0.log").write_text(caught)
    told = outcome(box, exits(3, -15))
    assert told.detail == "rank 0 exited with code 3; last line: ValueError: caught and printed"
    assert told.first_failure and told.first_failure.exception is None
    assert outcome(box, exits(1, -15)).detail == "your program raised ValueError: caught and printed (rank 0)"


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        (b"usage: t.py [-h] [--lr LR]\nt.py: error: unrecognized arguments: --lrr 3\n", "--lrr 3"),
        (b"bash: line 1: trian: command not found\n\n", "trian: command not found"),
        (b"0/9\r1/9\r2/9\nconfig file is missing: conf/x.yaml", "conf/x.yaml"),
        (b"0/9\r1/9\rbroken", "last line: broken"),
        (b"[rank0]: no such table: \xff\n" + b"\n" * 50, "no such table: \ufffd"),
        (b"x" * 100_000 + b"\n" + b"y" * 1000, "y" * 300 + "…"),
    ],
)
def test_what_a_failed_program_printed_last_is_told(box: Path, printed: bytes, said: str) -> None:
    (box / layout.RAW_LOGS / "rank-0.log").write_bytes(printed)
    for code in (1, 2, 127):
        told = outcome(box, exits(code, -15))
        assert told.detail.startswith(f"rank 0 exited with code {code}; last line: ")
        assert told.detail.endswith(said)
        assert told.first_failure and told.first_failure.last_lines
        assert told.first_failure.last_lines.endswith(said.removeprefix("last line: "))
        assert "\r" not in told.first_failure.last_lines
    assert Outcome.from_json(told.to_json()) == told


STACK = 'Traceback (most recent call last):\n  File "t.py", line 3, in {frame}\n    x()\nValueError: old\n'


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        (
            "ERROR:root:step 3 failed\n" + STACK + "config is wrong\n",
            "exited with code 1; last line: config is wrong",
        ),
        ("12:00:01 | ERROR | t:x:3 - bad\n\n" + STACK + "config is wrong", "last line: config is wrong"),
        (
            STACK.replace("{frame}", "load") + "config is wrong\n",
            "exited with code 1; last line: config is wrong",
        ),
        (STACK + "line\n" * 19 + "last one", "your program raised ValueError: old (rank 0)"),
        (STACK + "line\n" * 20 + "last one", "exited with code 1; last line: last one"),
        (STACK + "step\n" * 50 + "config is wrong", "exited with code 1; last line: config is wrong"),
        (
            STACK + "config is wrong\n",
            "your program raised ValueError: old (rank 0); last line: config is wrong",
        ),
        (STACK, "your program raised ValueError: old (rank 0)"),
        (STACK + "a\nlong\nmessage\nof it\n", "your program raised ValueError: old (rank 0)"),
        (STACK + "\twith code of it\n", "your program raised ValueError: old (rank 0)"),
        (
            "ERROR: bad\n" + STACK + "wandb: View run at x\n[rank0]:[W1126 10:00:00.1 x.cpp:1] z\n",
            "raised ValueError: old (rank 0)",
        ),
        (  # Hydra leaves the frames out that are its own, and with them the program's module
            "Error executing job with overrides: []\n"
            + STACK.replace("{frame}", "train")
            + "\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n",
            "your program raised ValueError: old (rank 0)",
        ),
        (
            "[rank0]: ERROR a\n[rank0]: " + STACK.replace("\n", "\n[rank0]: ") + "config is wrong",
            "config is wrong",
        ),
    ],
)
def test_what_is_printed_after_a_logged_traceback_is_told_as_the_reason(
    box: Path, printed: str, said: str
) -> None:
    (box / layout.RAW_LOGS / "rank-0.log").write_text(printed.replace("{frame}", "<module>"))
    told = outcome(box, exits(1, -15))
    assert told.detail.endswith(said)
    assert told.first_failure is not None
    assert (told.first_failure.exception is None) is ("raised" not in told.detail)
    assert Outcome.from_json(told.to_json()) == told


def test_nothing_is_told_of_what_ranks_printed_that_others_ended(box: Path) -> None:
    for rank in range(4):
        (box / layout.RAW_LOGS / f"rank-{rank}.log").write_text("step 7\n")
    ranks = outcome(box, exits(2, -15, 0, 143)).ranks
    assert [rank.last_lines for rank in ranks] == ["step 7", None, None, None]


def test_a_program_that_fails_without_a_word_has_no_last_line(box: Path) -> None:
    (box / layout.RAW_LOGS / "rank-0.log").write_text("\n \n\n")
    assert outcome(box, exits(3, -15)).detail == "rank 0 exited with code 3"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("DataLoader worker (pid 31499) is killed by signal: Killed. ", "oom"),
        (
            "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's "
            "workers are out of shared memory. Please try to raise your shared memory limit.",
            "oom",
        ),
        ("DataLoader worker (pid 31499) is killed by signal: Segmentation fault. ", "signal"),
        ("DataLoader worker (pid(s) 31499) exited unexpectedly", "signal"),
        ("DataLoader worker (pid(s) 1, 2) exited unexpectedly", "signal"),
        (
            "DataLoader worker (pid 9) exited unexpectedly with exit code 1. Details are lost due to "
            "multiprocessing. Rerunning with num_workers=0 may give better error trace.",
            "error",
        ),
    ],
)
def test_a_killed_worker_of_a_data_loader_is_no_error_of_the_program(
    box: Path, message: str, reason: str
) -> None:
    text = f"Traceback (most recent call last):\n  File 'x.py', line 12\nRuntimeError: {message}\n"
    (box / layout.RAW_LOGS / "rank-0.log").write_text(text)
    assert outcome(box, exits(1, -15)).reason == reason


def test_what_the_rank_wrote_of_itself_wins_over_its_log(box: Path) -> None:
    record = {"reason": "data", "step": 4, "exception": "DataError: NaN in u", "traceback": "..."}
    (box / layout.RANKS / "rank-0.json").write_text(json.dumps(record))
    told = outcome(box, exits(1, -15))
    assert (told.reason, told.detail) == ("data", "rank 0 failed at step 4: DataError: NaN in u")
    failure = told.first_failure
    assert failure is not None
    assert (failure.exception, failure.traceback) == ("DataError: NaN in u", "...")


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (WATCHDOG % TIMEOUT, "communication"),
        (WATCHDOG % "NCCL error: remote process exited or there was a network error", "communication"),
        (LEFT % "ProcessGroupNCCL watchdog hang", "communication"),
        (LEFT % "collective timeout or exception", "communication"),
        (WATCHDOG % "CUDA error: uncorrectable ECC error encountered", "device"),
        (WATCHDOG % "CUDA error: out of memory", "oom"),
        # A faulty kernel does that, too: the watchdog only met with it.
        (WATCHDOG % "CUDA error: an illegal memory access was encountered", "signal"),
        (
            WATCHDOG % "CUDA error: an illegal memory access" + LEFT % "collective timeout or exception",
            "signal",
        ),
        ("double free or corruption (out)\nFatal Python error: Aborted\n", "signal"),
    ],
)
def test_an_abort_by_nccl_s_watchdog_has_the_reason_that_the_watchdog_had(
    box: Path, log: str, reason: str
) -> None:
    (box / layout.RAW_LOGS / "rank-1.log").write_text(f"step 5\n{log}")
    told = outcome(box, exits(-signal.SIGTERM, -signal.SIGABRT))
    assert (told.reason, told.first_failure and told.first_failure.rank) == (reason, 1)


def test_the_line_about_an_abort_says_what_the_watchdog_saw(box: Path) -> None:
    (box / layout.RAW_LOGS / "rank-1.log").write_text(WATCHDOG % TIMEOUT)
    assert (
        outcome(box, exits(-signal.SIGTERM, -signal.SIGABRT)).detail
        == f"rank 1 was killed by SIGABRT: {TIMEOUT}"
    )


def test_a_rank_that_crashed_is_blamed_though_the_watchdogs_of_the_others_ended_them_first(box: Path) -> None:
    (box / layout.RAW_LOGS / "rank-0.log").write_text(WATCHDOG % TIMEOUT)
    told = outcome(box, exits(-signal.SIGABRT, -signal.SIGSEGV))
    assert (told.reason, told.detail) == ("signal", "rank 1 was killed by SIGSEGV")
