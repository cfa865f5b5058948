"""Ranks are asked for their flight recorders as NCCL's watchdog expects it."""

import os
import threading
import time
from pathlib import Path

from tests.waiting import LONGEST_S, eventually
from vastrun.contract import layout
from vastrun.onstart.supervision.launch import make_folders
from vastrun.onstart.supervision.stacks import dump_recorders


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
