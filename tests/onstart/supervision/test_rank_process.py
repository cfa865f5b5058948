"""A rank ends as its program ended, and the other ranks live on for a while after one has failed."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.onstart.supervision.concluding import exits, raised
from tests.waiting import LONGEST_S
from vastrun.contract import layout
from vastrun.onstart.supervision.rank_process import FAILED_GRACE_S, VICTIM_WAIT_S, failure_grace_s

OWN = "ValueError: a negative density"
LOST_PEER = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:34567"


@pytest.mark.parametrize(
    ("ended", "grace_s"),
    [
        ({0: OWN}, FAILED_GRACE_S),
        ({0: LOST_PEER}, FAILED_GRACE_S + VICTIM_WAIT_S),
        ({0: LOST_PEER, 1: LOST_PEER}, FAILED_GRACE_S + VICTIM_WAIT_S),
        ({0: LOST_PEER, 1: OWN}, FAILED_GRACE_S),
        ({}, FAILED_GRACE_S),
    ],
    ids=["by itself", "a connection was lost", "two lost it", "one of each", "left with exit code 0"],
)
def test_the_others_are_waited_for_longer_while_nobody_failed_by_itself(
    ended: dict[int, str], grace_s: float, tmp_path: Path
) -> None:
    for rank, error in ended.items():
        raised(tmp_path, rank, error, "RuntimeError")
    processes = exits(*(int(rank in ended) for rank in range(3))).processes
    assert failure_grace_s(tmp_path, processes) == grace_s


RUN = """
import os, sys
from pathlib import Path
from vastrun.onstart.supervision.rank_process import Child, run
run(Path(sys.argv[1]), 0, lambda: Child.start(lambda: {ends}))
"""


def exit_code(box: Path, ends: str) -> int:
    return subprocess.run([sys.executable, "-c", RUN.format(ends=ends), box], timeout=LONGEST_S).returncode


@pytest.mark.parametrize(
    ("ends", "code"), [("os._exit(0)", 0), ("os._exit(3)", 3), ("os.kill(os.getpid(), 9)", -signal.SIGKILL)]
)
def test_a_rank_exits_as_its_program_exited(ends: str, code: int, box: Path) -> None:
    assert exit_code(box, ends) == code
    assert (box / layout.RAW_LOGS / "rank-0.log").read_text() == ""


def test_a_rank_that_exits_0_waits_for_no_other_although_it_printed_a_lost_connection(box: Path) -> None:
    traceback = f'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\n{LOST_PEER}\n'
    ends = f"os._exit(os.write(2, {traceback.encode()!r}) and 0)"
    assert exit_code(box, ends) == 0
    exited_at = time.time()
    assert LOST_PEER in (box / layout.RAW_LOGS / "rank-0.log").read_text()
    record = json.loads((box / layout.RANKS / "rank-0.process.json").read_text())
    assert exited_at - record["ended_at"] < VICTIM_WAIT_S
