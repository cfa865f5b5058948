"""Stacks as Python prints them, the frame that is worth a name, and flight recorders as NCCL writes them."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.waiting import LONGEST_S, eventually
from vastrun.contract import layout
from vastrun.onstart.supervision.launch import make_folders
from vastrun.onstart.supervision.stacks import dump_recorders, dump_stacks, main_thread, top_frame

SITE = "/venv/lib/python3.11/site-packages"
DUMP = f"""\
Thread 0x00007f1 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait

Thread 0x00007f0 (most recent call first):
  <no Python frame>

Current thread 0x00007f2 (most recent call first):
  File "{SITE}/torch/distributed/distributed_c10d.py", line 2501 in all_reduce
  File "{SITE}/torch/distributed/c10d_logger.py", line 83 in wrapper
  File "/box/code/model.py", line 12 in mean_over_ranks
  File "/box/code/train.py", line 40 in <module>
"""


def test_the_main_thread_is_the_oldest() -> None:
    assert [frame.function for frame in main_thread(DUMP)] == [
        "all_reduce",
        "wrapper",
        "mean_over_ranks",
        "<module>",
    ]


def test_of_several_dumps_the_last_counts() -> None:
    later = (
        'Current thread 0x00007f2 (most recent call first):\n  File "/box/code/train.py", line 41 in save\n'
    )
    assert [frame.function for frame in main_thread(DUMP + "\n" + later)] == ["save"]


def test_the_frame_named_is_the_users_innermost_one() -> None:
    frame = top_frame(main_thread(DUMP))
    assert frame is not None
    assert frame.text(Path("/box")) == "code/model.py:12 mean_over_ranks"


def test_without_code_of_the_user_the_innermost_frame_is_named_by_its_package() -> None:
    frame = top_frame(main_thread(DUMP)[:2])
    assert frame is not None
    assert frame.text(Path("/box")) == "torch/distributed/distributed_c10d.py:2501 all_reduce"


def test_a_text_without_a_dump_has_no_frames() -> None:
    assert main_thread("nothing\n") == ()
    assert top_frame(()) is None


def test_a_rank_that_opened_its_stack_file_tells_and_lives_on(tmp_path: Path) -> None:
    stacks = tmp_path / layout.STACKS
    stacks.mkdir(parents=True)
    program = f"""
import faulthandler, signal, time
faulthandler.register(signal.SIGUSR1, file=open({str(stacks / "rank-0.txt")!r}, "w"))
print("ready", flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        written = dump_stacks(tmp_path, {0: process.pid}, within_s=LONGEST_S)
        assert process.poll() is None
        process.kill()
    assert written == ("run/stacks/rank-0.txt",)
    assert main_thread((stacks / "rank-0.txt").read_text())[0].function == "<module>"


def test_a_program_started_by_a_shell_is_found_below_it(tmp_path: Path) -> None:
    log = tmp_path / layout.RAW_LOGS / "rank-0.log"
    log.parent.mkdir(parents=True)
    script = f"{sys.executable} -X faulthandler -c 'print(1, flush=True); import time; time.sleep(600)'; true"
    with log.open("wb") as file, subprocess.Popen(["bash", "-c", script], stdout=file, stderr=file) as shell:
        eventually(lambda: log.read_bytes() == b"1\n")
        written = dump_stacks(tmp_path, {0: shell.pid}, within_s=LONGEST_S)
    assert written == ("run/stacks/rank-0.txt",)
    assert "Fatal Python error: Aborted" in (tmp_path / written[0]).read_text()


class Watchdog(threading.Thread):
    """Makes the pipe of a rank and writes its file when a byte comes, as torch does."""

    def __init__(self, box: Path, rank: int) -> None:
        super().__init__(daemon=True)
        self._pipe = box / layout.RECORDER_PIPES / f"rank-{rank}.pipe"
        self._dump = box / layout.FLIGHT_RECORDER / f"rank-{rank}"
        os.mkfifo(self._pipe)
        self._fd = os.open(self._pipe, os.O_RDONLY | os.O_NONBLOCK)

    def run(self) -> None:
        eventually(self._asked)
        self._dump.write_bytes(b"collectives")

    def _asked(self) -> bool:
        try:
            return bool(os.read(self._fd, 128))
        except BlockingIOError:
            return False


def test_ranks_that_have_a_recorder_write_it_and_the_others_are_not_waited_for(tmp_path: Path) -> None:
    make_folders(tmp_path)
    watchdogs = [Watchdog(tmp_path, rank) for rank in (0, 2)]
    for watchdog in watchdogs:
        watchdog.start()
    dump_recorders(tmp_path, [0, 1, 2], within_s=LONGEST_S)
    written = sorted(path.name for path in (tmp_path / layout.FLIGHT_RECORDER).iterdir())
    assert written == ["rank-0", "rank-2"]


def test_a_recorder_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    make_folders(tmp_path)
    Watchdog(tmp_path, 0)
    began = time.monotonic()
    dump_recorders(tmp_path, [0], within_s=0.2)
    assert time.monotonic() - began >= 0.2


def test_without_nccl_nothing_is_waited_for(tmp_path: Path) -> None:
    make_folders(tmp_path)
    began = time.monotonic()
    dump_recorders(tmp_path, [0, 1], within_s=LONGEST_S)
    assert time.monotonic() - began < LONGEST_S / 2
