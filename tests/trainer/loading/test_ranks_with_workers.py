"""A rank whose workers read from files: it learns as any other, says who died, and leaves nobody behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer import sessions
from tests.trainer.conftest import SMALL, Box, together
from tests.waiting import eventually
from vastrun.contract import layout
from vastrun.contract.reports import read_beat
from vastrun.onstart.supervision.processes import descendants

pytestmark = pytest.mark.torch

STEADY = {"micro_batch": 4, "optim": {"schedule": "constant", "warmup": 0.0}}
DISK = {**SMALL["data"], "keep": "disk"}


def start_rank(box: Box) -> subprocess.Popen[bytes]:
    """The only one. It is not forked from the tests' own server, which would fork its workers, too."""
    place = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 0}
    environment = os.environ | {name: str(value) for name, value in place.items()}
    environment |= {"OMP_NUM_THREADS": "1", "VASTRUN_BOX": str(box.path)}
    with (box.path / "rank-0.log").open("wb") as log:
        command = [sys.executable, "-u", "-m", "vastrun.trainer.train"]
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


@pytest.mark.slow
def test_a_killed_worker_ends_its_rank_as_a_signal_does(tmp_path: Path) -> None:
    box = Box(sessions.prepare(tmp_path / "box"), **STEADY, steps=1_000_000, data=DISK)
    rank = start_rank(box)
    beat = box.path / layout.HEARTBEATS / "rank-0"
    eventually(lambda: (seen := read_beat(beat)) is not None and seen.step > 20)
    family = descendants(rank.pid)
    workers = [pid for child in family for pid in descendants(child)]
    assert len(workers) == 2
    assert "data in files, read by 2 processes a rank, without /dev/shm" in box.log(0)

    os.kill(workers[0], signal.SIGKILL)
    assert rank.wait(60) == 1
    assert box.reason(0)["reason"] == "signal"
    assert f"(pid {workers[0]}) was killed by SIGKILL while it read step " in box.reason(0)["exception"]
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in family))
    undisturbed = together(sessions.curve, 1, sessions.prepare(tmp_path / "other"), STEADY)[0]
    assert [box.losses()[step] for step in range(1, 21)] == undisturbed.losses
