"""What is said of a training that did not go well, or was stopped."""

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.onstart.supervision.concluding import exits, outcome
from vastrun.contract import layout
from vastrun.contract.outcome import FileSystem, Hang, MachineReading, Outcome

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

MEMORY_KILL = MachineReading(at=11.0, memory_killed=True, memory="peak memory 11.9 GiB of 12.0 GiB")
HUNG_IN, WAITS = " at step 30 (data), in code/slow.py:9", ("rank 0 in loss", "rank 1 in backward")
HANG = Hang(rank=1, step=30, activity="data", stalled_s=12.3, frame="code/slow.py:9 wait", stacks=())


@pytest.mark.parametrize(
    ("changes", "after"),
    [
        ({}, f"{HUNG_IN} wait"),
        ({"frame": ""}, " at step 30 (data)"),
        ({"frame": "", "activity": "step"}, " at step 30"),
        ({"frame": "", "step": 0, "activity": ""}, ""),
        ({"in_collective": True, "waits": WAITS[1:]}, f"{HUNG_IN} wait"),
        ({"waits": WAITS}, f"{HUNG_IN} wait"),
        ({"in_collective": True, "waits": WAITS}, f"{HUNG_IN} wait; waiting: {', '.join(WAITS)}"),
    ],
)
def test_a_hang_is_told_before_what_came_of_it_with_its_place_and_what_ranks_waited_in_if_all_waited(
    box: Path, changes: dict[str, Any], after: str
) -> None:
    told = outcome(box, replace(exits(-6, -6), hang=replace(HANG, **changes), killed=frozenset({0, 1})))
    assert (told.reason, told.first_failure) == ("hang", None)
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


BEGUN = "the launch agent failed after it had started the ranks"
UNBEGUN = "the launch agent failed before any rank started"
LOST_PEER = {"reason": "communication", "exception": "RuntimeError: connection closed", "step": 7}


@pytest.mark.parametrize(
    ("codes", "changes", "record", "reason", "detail"),
    [
        ((0,), {}, None, "finished", "the rank exited 0"),
        ((0, 0), {}, None, "finished", "all 2 ranks exited 0"),
        ((None, None), {"lost": (1, 3)}, None, "communication", "node 1, 3 can no longer be reached"),
        ((1, -15), {"lost": (1,)}, LOST_PEER, "communication", "node 1 can no longer be reached"),
        ((-9, -9), {"lost": (1,), "killed": {0, 1}}, None, "communication", "node 1 can no longer"),
        ((3, -15), {"lost": (1,)}, None, "error", "rank 0 exited with code 3"),
        ((0, 0), {"stop_cause": "stopped"}, None, "finished", "all 2 ranks exited 0"),
        ((None, None), {"agent_exit": -9, "reading": MEMORY_KILL}, None, "oom", f"{BEGUN}: SIGKILL"),
        ((None, None), {"agent_exit": -9}, None, "signal", f"{BEGUN}: SIGKILL"),
        ((None, None), {"agent_exit": 1, "reading": MEMORY_KILL}, None, "error", f"{BEGUN}: exit code 1"),
        ((None, None), {"agent_exit": 1, "processes": ()}, None, "error", f"{UNBEGUN}: exit code 1"),
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


@pytest.mark.parametrize("code", [-signal.SIGKILL, 137])
def test_a_rank_killed_by_the_kernel_ran_out_of_memory(box: Path, code: int) -> None:
    told = outcome(box, replace(exits(-signal.SIGTERM, code), reading=MEMORY_KILL))
    assert told.reason == "oom"
    assert told.detail.endswith("; the kernel killed it: out of memory, peak memory 11.9 GiB of 12.0 GiB")


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (137, "SIGKILL"),
        (143, "SIGTERM"),
        (139, "SIGSEGV"),
        (134, "SIGABRT"),
        (135, "SIGBUS"),
        (136, "SIGFPE"),
        (247, "SIGKILL"),  # of a Python that exits as its child did
        (245, "SIGSEGV"),
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
    disk = FileSystem(path="the disk", size=8_000_000_000, free=0, full_at=9.0)
    reading = MachineReading(at=11.0, file_systems=(disk,))
    told = outcome(box, replace(exits(1, -signal.SIGTERM), reading=reading))
    assert (told.reason, told.detail) == ("disk", "rank 0 exited with code 1; the disk (8 GB) was full")


def test_an_exception_is_only_read_from_the_log_of_a_program_that_left_with_1(box: Path) -> None:
    caught = "Traceback (most recent call last):\n  File 'x'\nValueError: caught and printed\n"
    (box / layout.RAW_LOGS / "rank-0.log").write_text(caught)
    told = outcome(box, exits(3, -15))
    assert told.detail == "rank 0 exited with code 3; last line: ValueError: caught and printed"
    assert told.first_failure and told.first_failure.exception is None
    told = outcome(box, exits(1, -15))
    assert told.detail == "rank 0 exited with code 1 after it printed ValueError: caught and printed"


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


STACK = 'Traceback (most recent call last):\n  File "t.py", line 3, in main\n    x()\nValueError: old\n'
PRINTED = "exited with code 1 after it printed ValueError: old"


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        (STACK, PRINTED),
        ("ERROR: bad\n" + STACK + "config is wrong\n", f"{PRINTED}; last line: config is wrong"),
        ("[rank0]: " + STACK.replace("\n", "\n[rank0]: ") + "wrong", f"{PRINTED}; last line: wrong"),
        # The program went on after it.
        (STACK + "step\n" * 12 + "config is wrong", "exited with code 1; last line: config is wrong"),
    ],
)
def test_an_exception_that_was_only_printed_is_told_as_such(box: Path, printed: str, said: str) -> None:
    (box / layout.RAW_LOGS / "rank-0.log").write_text(printed)
    told = outcome(box, exits(1, -15))
    assert (told.reason, told.detail) == ("error", f"rank 0 {said}")
    assert Outcome.from_json(told.to_json()) == told


def test_nothing_is_told_of_what_ranks_printed_that_others_ended(box: Path) -> None:
    for rank in range(4):
        (box / layout.RAW_LOGS / f"rank-{rank}.log").write_text("step 7\n")
    ranks = outcome(box, exits(2, -15, 0, 143)).ranks
    assert [rank.last_lines for rank in ranks] == ["step 7", None, None, None]


def test_a_program_that_fails_without_a_word_has_no_last_line(box: Path) -> None:
    (box / layout.RAW_LOGS / "rank-0.log").write_text("\n \n\n")
    assert outcome(box, exits(3, -15)).detail == "rank 0 exited with code 3"


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
        (WATCHDOG % "CUDA error: uncorrectable ECC error encountered", "signal"),
        (WATCHDOG % "CUDA error: out of memory", "signal"),
        # A faulty kernel does that, too: the watchdog only met with it.
        (WATCHDOG % "CUDA error: an illegal memory access was encountered", "signal"),
        (WATCHDOG % "CUDA error: an illegal memory access" + LEFT % "collective timeout", "signal"),
        ("double free or corruption (out)\nFatal Python error: Aborted\n", "signal"),
    ],
)
def test_an_abort_by_nccls_watchdog_has_the_watchdogs_reason(box: Path, log: str, reason: str) -> None:
    (box / layout.RAW_LOGS / "rank-1.log").write_text(f"step 5\n{log}")
    told = outcome(box, exits(-signal.SIGTERM, -signal.SIGABRT))
    assert (told.reason, told.first_failure and told.first_failure.rank) == (reason, 1)
    assert (TIMEOUT in log) is told.detail.endswith(f"rank 1 was killed by SIGABRT: {TIMEOUT}")


def test_a_rank_that_crashed_is_blamed_though_the_watchdogs_of_the_others_ended_them_first(box: Path) -> None:
    (box / layout.RAW_LOGS / "rank-0.log").write_text(WATCHDOG % TIMEOUT)
    told = outcome(box, exits(-signal.SIGABRT, -signal.SIGSEGV))
    assert (told.reason, told.detail) == ("signal", "rank 1 was killed by SIGSEGV")


def test_a_crash_before_the_stop_is_still_the_reason(box: Path) -> None:
    told = outcome(box, replace(exits(-signal.SIGSEGV, 143), stop_cause="stopped", stopped_at=10.5))
    assert (told.reason, told.detail) == ("signal", "rank 0 was killed by SIGSEGV")


@pytest.mark.parametrize("stopped_at", [9.0, 10.0], ids=["after the stop", "in the same moment"])
def test_a_crash_on_the_way_out_does_not_hide_the_stop(stopped_at: float, box: Path) -> None:
    observed = replace(exits(-signal.SIGSEGV, 143), stop_cause="time_limit", stopped_at=stopped_at)
    told = outcome(box, observed)
    assert (told.reason, told.stop_cause, told.first_failure) == ("stopped", "time_limit", None)


@pytest.mark.parametrize(
    ("changes", "reason", "sent_at"),
    [
        ({}, "stopped", 9.0),
        ({"steps_needed": 600, "stopped_at_step": 599}, "stopped", 9.0),
        ({"steps_needed": 600, "stopped_at_step": None}, "stopped", 9.0),
        ({"steps_needed": 600, "stopped_at_step": 600}, "finished", 9.0),
        # One rank had ended before the stop, the other had not.
        ({"stopped_at": 10.5}, "stopped", 10.5),
        # All had ended.
        ({"stopped_at": 11.5}, "finished", None),
        # It exits 0 only when it has finished.
        ({"training": True}, "finished", 9.0),
    ],
)
def test_a_program_that_exits_0_after_a_stop_has_finished_only_if_it_had_done_its_steps(
    box: Path, changes: dict[str, Any], reason: str, sent_at: float | None
) -> None:
    observed = replace(exits(0, 0), stop_cause="time_limit", stopped_at=9.0)
    told = outcome(box, replace(observed, **changes))
    assert (told.reason, told.stop_sent_at) == (reason, sent_at)
    assert told.stop_sent_step == (None if sent_at is None else changes.get("stopped_at_step"))


def test_ranks_that_were_too_slow_to_stop_are_named(box: Path) -> None:
    observed = replace(exits(143, -9), stop_cause="stopped", stopped_at=9.0, killed=frozenset({1}))
    why = "stopped at your request; did not exit in time and was killed: rank 1"
    assert outcome(box, observed).detail == why


@pytest.mark.parametrize(
    ("exception", "told"),
    [
        (None, "checkpoint saved"),
        (
            "StoppedWithoutSaveError: asked to stop in step 7: left without saving",
            "rank 1 could not save in time: the steps since the last checkpoint are lost",
        ),
    ],
)
def test_stopped_ranks_are_shown_as_saved_or_not(box: Path, exception: str | None, told: str) -> None:
    for rank, said in enumerate((None, exception)):
        record = {"reason": "stopped", "step": 7, "exception": said}
        (box / layout.RANKS / f"rank-{rank}.json").write_text(json.dumps(record))
    observed = replace(exits(143, 143), stop_cause="stopped", stopped_at=9.0)
    assert outcome(box, observed).detail == f"stopped at your request; {told}"


def test_a_signal_to_one_rank_alone_is_told_though_all_leave_together(box: Path) -> None:
    for rank in (0, 1):
        record = {"reason": "stopped", "step": 7, "asked": rank == 1}
        (box / layout.RANKS / f"rank-{rank}.json").write_text(json.dumps(record))
    told = outcome(box, exits(143, 143))
    assert told.reason == "stopped"
    assert told.detail == "rank 1 received SIGTERM from outside of this run; checkpoint saved"
