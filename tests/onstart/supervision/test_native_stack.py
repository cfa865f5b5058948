"""What is kept of a program that crashes in native code."""

import os
import shutil
import textwrap
import time
from pathlib import Path

import pytest

from tests.onstart.supervision.cores import cores_are_files
from tests.onstart.supervision.launches import Launcher
from vastrun.contract import layout
from vastrun.onstart.supervision.core_file import CoreLocation
from vastrun.onstart.supervision.native_stack import (
    keep_native_stacks,
    native_file,
    read_crash,
    top_native_frame,
)
from vastrun.onstart.supervision.rank_process import RankProcess

CRASHES = """
    import ctypes

    def reads_nothing():
        ctypes.string_at(0)

    reads_nothing()
"""
GDB = """\
Program terminated with signal SIGSEGV, Segmentation fault.
#0  __pthread_kill_implementation (threadid=..., signo=11) at ./nptl/pthread_kill.c:44
#1  0x00007f0b97e06fb2 in __GI_raise (sig=11) at ../sysdeps/posix/raise.c:26
#2  <signal handler called>
#3  0x00007f0b9744e608 in at::native::add<float, 4>(at::Tensor&) (self=...) from /opt/lib/libtorch_cpu.so
#4  0x00007f0b97457fff in main () at main.cpp:7

Thread 2 (LWP 8):
#0  0x00007f0b97e06fb2 in wait () from /lib/libc.so.6
"""


def test_the_frame_that_crashed_is_below_the_handlers_of_its_signal() -> None:
    assert top_native_frame(GDB).endswith("(libtorch_cpu.so)")
    assert top_native_frame(GDB).startswith("at::native::add<float, 4>")
    assert top_native_frame(GDB.partition("#2 ")[0]) == ""
    assert top_native_frame("#0  0x7f in spin () from /lib/libx.so\n") == "spin (libx.so)"
    assert top_native_frame("#0  0x7f in ?? ()\n#1  0x0 in main () at a.c:7\n") == "main (a.c:7)"
    assert top_native_frame("") == ""


def ended(exit_code: int, rank: int = 0) -> RankProcess:
    return RankProcess(rank=rank, pid=7 + rank, started_at=1.0, exit_code=exit_code, ended_at=2.0)


def test_without_a_core_the_python_stack_is_kept_with_the_reason(tmp_path: Path) -> None:
    for folder in (layout.RAW_LOGS, layout.STACKS, layout.CODE):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / layout.RAW_LOGS / "rank-0.log").write_text(
        "step 1\nFatal Python error: Segmentation fault\n\n"
        "Current thread 0x00007f00 (most recent call first):\n"
        f'  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at\n'
        f'  File "{tmp_path}/code/train.py", line 7 in step\n'
    )
    nowhere = CoreLocation(folder=tmp_path / layout.CODE, name="core", has_pid=False)

    keep_native_stacks(tmp_path, [ended(-11)], since=time.time(), location=nowhere)

    crash, stacks = read_crash(tmp_path, 0)
    assert stacks is not None
    assert crash == "in code/train.py:7 step; stacks: details/stacks/rank-0.native.txt"
    assert "There is no native stack: " in stacks
    assert "ctypes/__init__.py:519 string_at" in stacks


def test_ranks_that_the_supervisor_killed_and_those_that_did_not_crash_leave_nothing(tmp_path: Path) -> None:
    location = CoreLocation(folder=tmp_path, name="core", has_pid=False)
    killed, raised = ended(-6), ended(1, rank=1)
    keep_native_stacks(tmp_path, [killed, raised], since=0.0, exclude={0}, location=location)
    assert not native_file(tmp_path, 0).exists() and not native_file(tmp_path, 1).exists()


CORE = b"\x7fELF\x02\x01" + bytes(10) + b"\x04\x00" + bytes(200)


def test_a_gdb_that_is_too_slow_is_killed_and_what_it_printed_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gdb, began = tmp_path / "gdb", tmp_path / "began"
    # It waits by itself: a child would live on, and hold the pipe.
    gdb.write_text(
        f"#!/bin/bash\necho '#0  crash () at x.c:1'\ntouch {began}\n"
        "mkfifo $0.pipe\nread -t 30 <> $0.pipe\necho '#1  main () at x.c:9'\n"
    )
    gdb.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "core").write_bytes(CORE)
    location = CoreLocation(folder=tmp_path, name="core", has_pid=False)

    keep_native_stacks(tmp_path, [ended(-11)], since=0.0, location=location, is_stopping=began.exists)

    _, stacks = read_crash(tmp_path, 0)
    assert stacks is not None
    assert "crash () at x.c:1" in stacks
    assert "main () at x.c:9" not in stacks


needs_cores = pytest.mark.skipif(not cores_are_files(), reason="the kernel hands core files to a program")


@needs_cores
@pytest.mark.slow
@pytest.mark.needs("gdb")
def test_a_program_that_crashes_has_its_native_stack_in_the_verdict_and_leaves_no_core(
    launch: Launcher,
) -> None:
    run = launch(CRASHES, beating=False, ranks=1)
    box, outcome = run.box, run.outcome()
    assert outcome.reason == "signal"
    assert outcome.detail.startswith("rank 0 was killed by SIGSEGV in ")
    assert "strlen" in outcome.detail and "called by code/program.py:5 reads_nothing" in outcome.detail
    assert outcome.detail.endswith("stacks: details/stacks/rank-0.native.txt")
    failure = outcome.first_failure
    assert failure is not None and failure.traceback is not None
    assert "Native stack (gdb):" in failure.traceback
    assert "string_at" in native_file(box, 0).read_text()
    assert not list((box / layout.CODE).glob("core*"))


@needs_cores
def test_without_gdb_the_notes_of_a_small_core_name_the_address_and_the_library(
    tmp_path: Path, launch: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "sh", "env"):
        (tools / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(tools))
    # faulthandler sends the signal once more by itself: that one has no address.
    program = f"import faulthandler\nfaulthandler.disable()\n{textwrap.dedent(CRASHES)}"
    run = launch(program, beating=False, ranks=1)
    box, outcome = run.box, run.outcome()
    assert outcome.detail.startswith("rank 0 was killed by SIGSEGV at address 0x0 in libc.so.6+0x")
    assert "the image has no gdb" in native_file(box, 0).read_text()
    assert not list((box / layout.CODE).glob("core*"))
