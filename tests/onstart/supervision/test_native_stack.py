"""What is kept of a program that crashes in native code."""

import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.onstart.supervision.cores import cores_are_files
from tests.onstart.supervision.launches import Launched
from vastrun.contract import layout
from vastrun.onstart.supervision.core_file import CoreLocation, core_location, read_notes
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


@pytest.mark.parametrize(
    ("pattern", "uses_pid", "name", "has_pid"),
    [
        ("core", "0", "core", False),
        ("core", "1", "core.*", True),
        ("core.%e.%p", "0", "core.*.*", True),
        ("crash-%t", "0", "crash-*", False),
    ],
)
def test_the_name_of_a_core_follows_the_kernels_pattern(
    pattern: str, uses_pid: str, name: str, has_pid: bool, tmp_path: Path
) -> None:
    location = place_of(tmp_path, pattern, uses_pid)
    assert location == CoreLocation(folder=tmp_path, name=name, has_pid=has_pid)


def test_cores_go_to_an_absolute_folder_or_to_a_program(tmp_path: Path) -> None:
    location = place_of(tmp_path, "/var/crash/core.%p")
    assert location is not None and location.folder == Path("/var/crash")
    for pattern in ("|/usr/share/apport/apport -p%p", "@socket", "", "/var/%e/core"):
        assert place_of(tmp_path, pattern) is None
    assert core_location(tmp_path, tmp_path / "missing", tmp_path / "missing") is None


def place_of(folder: Path, pattern: str, uses_pid: str = "0") -> CoreLocation | None:
    (folder / "pattern").write_text(f"{pattern}\n")
    (folder / "uses_pid").write_text(f"{uses_pid}\n")
    return core_location(folder, folder / "pattern", folder / "uses_pid")


@pytest.mark.parametrize(
    "content", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + bytes(200), os.urandom(4000), b"\xff" * 4000]
)
def test_what_is_no_core_has_no_notes_and_is_not_deleted(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "core").write_bytes(content)
    assert read_notes(tmp_path / "core") is None
    assert CoreLocation(folder=tmp_path, name="core", has_pid=False).written(0.0) == []


def test_without_a_core_the_python_stack_is_kept_with_the_reason(tmp_path: Path) -> None:
    for folder in (layout.RAW_LOGS, layout.STACKS, layout.CODE):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / layout.RAW_LOGS / "rank-0.log").write_text(
        "step 1\nFatal Python error: Segmentation fault\n\n"
        "Current thread 0x00007f00 (most recent call first):\n"
        f'  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at\n'
        f'  File "{tmp_path}/code/train.py", line 7 in step\n'
    )
    process = RankProcess(rank=0, pid=7, started_at=1.0, exit_code=-11, ended_at=2.0)
    nowhere = CoreLocation(folder=tmp_path / layout.CODE, name="core", has_pid=False)

    keep_native_stacks(tmp_path, [process], since=time.time(), location=nowhere)

    crash, stacks = read_crash(tmp_path, 0)
    assert stacks is not None
    assert crash == "in code/train.py:7 step; stacks: details/stacks/rank-0.native.txt"
    assert "There is no native stack: " in stacks
    assert "ctypes/__init__.py:519 string_at" in stacks


def test_ranks_that_the_supervisor_killed_and_those_that_did_not_crash_leave_nothing(tmp_path: Path) -> None:
    aborted = RankProcess(rank=0, pid=7, started_at=1.0, exit_code=-6, ended_at=2.0)
    raised = RankProcess(rank=1, pid=8, started_at=1.0, exit_code=1, ended_at=2.0)
    location = CoreLocation(folder=tmp_path, name="core", has_pid=False)
    keep_native_stacks(tmp_path, [aborted, raised], since=0.0, exclude={0}, location=location)
    assert not native_file(tmp_path, 0).exists() and not native_file(tmp_path, 1).exists()


CORE = b"\x7fELF\x02\x01" + bytes(10) + b"\x04\x00" + bytes(200)


def test_of_many_cores_the_newest_are_kept_while_the_program_runs(tmp_path: Path) -> None:
    location = CoreLocation(folder=tmp_path, name="core.*", has_pid=True)
    for number in range(1, 7):
        (tmp_path / f"core.{number}").write_bytes(CORE)
        os.utime(tmp_path / f"core.{number}", (number, number))
    (tmp_path / "core.py").write_text("a program")

    location.delete(2.0, keep=2)

    assert {path.name for path in tmp_path.iterdir()} == {"core.1", "core.5", "core.6", "core.py"}
    assert location.find(5, 0.0) == tmp_path / "core.5"
    assert location.find(77, 0.0) == tmp_path / "core.6"


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
    process = RankProcess(rank=0, pid=7, started_at=1.0, exit_code=-11, ended_at=2.0)
    location = CoreLocation(folder=tmp_path, name="core", has_pid=False)

    keep_native_stacks(tmp_path, [process], since=0.0, location=location, is_stopping=began.exists)

    _, stacks = read_crash(tmp_path, 0)
    assert stacks is not None
    assert "crash () at x.c:1" in stacks
    assert "main () at x.c:9" not in stacks


needs_cores = pytest.mark.skipif(not cores_are_files(), reason="the kernel hands core files to a program")


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[list[Launched]]:
    runs: list[Launched] = []
    yield runs
    for run in runs:
        run.end()


@needs_cores
@pytest.mark.slow
@pytest.mark.needs("gdb")
def test_a_program_that_crashes_has_its_native_stack_in_the_verdict_and_leaves_no_core(
    tmp_path: Path, launched: list[Launched]
) -> None:
    box = tmp_path / "box"
    launched.append(Launched(box, CRASHES, beating=False, ranks=1))

    outcome = launched[0].outcome()

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
    tmp_path: Path, launched: list[Launched], monkeypatch: pytest.MonkeyPatch
) -> None:
    box, tools = tmp_path / "box", tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "sh", "env"):
        (tools / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(tools))
    # faulthandler sends the signal once more by itself: that one has no address.
    program = f"import faulthandler\nfaulthandler.disable()\n{textwrap.dedent(CRASHES)}"
    launched.append(Launched(box, program, beating=False, ranks=1))

    outcome = launched[0].outcome()

    assert outcome.detail.startswith("rank 0 was killed by SIGSEGV at address 0x0 in libc.so.6+0x")
    assert "the image has no gdb" in native_file(box, 0).read_text()
    assert not list((box / layout.CODE).glob("core*"))


@needs_cores
def test_a_limit_that_was_set_before_and_its_cores_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / layout.CODE).mkdir(parents=True)
    script = (
        "import os, resource, sys; from pathlib import Path\n"
        "from vastrun.onstart.supervision.core_file import allow_core\n"
        "hard = resource.getrlimit(resource.RLIMIT_CORE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (int(sys.argv[2]), hard))\n"
        "allow_core(Path(sys.argv[1]), 1, os.environ)\n"
        "print(resource.getrlimit(resource.RLIMIT_CORE)[0])"
    )

    def limit_after(before: int) -> int:
        line = [sys.executable, "-c", script, str(tmp_path), str(before)]
        return int(subprocess.run(line, check=True, capture_output=True, text=True).stdout)

    assert limit_after(12345) == 12345
    assert 0 < limit_after(0) <= 2 << 30
