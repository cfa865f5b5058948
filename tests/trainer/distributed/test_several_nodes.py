"""Two nodes, each with a supervisor and a network of its own: one training, one verdict."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.conftest import Box, Start
from tests.trainer.distributed.networks import Machine, two_machines
from tests.waiting import LONGEST_S, eventually
from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.outcome import Outcome
from vastrun.trainer import data
from vastrun.trainer.job.config import config_of

pytestmark = [pytest.mark.torch, pytest.mark.needs("networks")]


class Cluster:
    """A box on each of two machines, and the supervisors in them."""

    def __init__(self, folder: Path, machines: tuple[Machine, Machine], **train: Any) -> None:
        self.machines = machines
        self.boxes = [Box(folder / f"node-{node}", **train) for node in (0, 1)]
        for box in self.boxes:
            job = {**box.json(layout.JOB), "ranks": 1, "nodes": 2, "restarts": {}}
            (box.path / layout.JOB).write_text(json.dumps(job))
            make_data(box)
        self.supervisors = [self._start(node) for node in (0, 1)]

    def outcomes(self) -> list[Outcome]:
        """What each supervisor wrote, after its end."""
        for supervisor in self.supervisors:
            supervisor.wait(LONGEST_S)
        return [Outcome.from_json((box.path / layout.OUTCOME).read_text()) for box in self.boxes]

    def rank(self, node: int) -> Any:
        """How the only rank of a node stands."""
        path = self.boxes[node].path / layout.STATUS
        ranks = json.loads(path.read_text())["ranks"] if path.exists() else []
        return ranks[0] if ranks else {"step": 0}

    def end(self) -> None:
        for supervisor in self.supervisors:
            supervisor.kill()
            supervisor.wait()

    def _start(self, node: int) -> subprocess.Popen[bytes]:
        variables = {
            "VASTRUN_BOX": str(self.boxes[node].path),
            "VASTRUN_NODE": str(node),
            "VASTRUN_RENDEZVOUS": f"{self.machines[0].address}:29400",
            "PYTHONPATH": str(Path(layout.__file__).parents[2]),
        }
        command = self.machines[node].command(sys.executable, "-P", "-m", "vastrun.onstart.supervise")
        return subprocess.Popen(command, env=os.environ | variables)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Starts one; what it left running at the end is killed."""
    started: list[Cluster] = []
    with two_machines() as machines:

        def start(**train: Any) -> Cluster:
            started.append(Cluster(tmp_path, machines, **train))
            return started[-1]

        yield start
        for each in started:
            each.end()


def make_data(box: Box) -> None:
    train = config_of(Job.read(box.path))
    data.generate(train.data[0], box.path / layout.DATA)


@pytest.mark.slow
def test_two_nodes_of_one_rank_learn_as_one_node_of_two(
    cluster: Callable[..., Cluster], box: Box, start_ranks: Start
) -> None:
    two = cluster()
    first, second = two.outcomes()
    for outcome in (first, second):
        assert (outcome.reason, outcome.detail) == ("finished", "all 2 ranks exited 0")
        assert (outcome.world_size, [end.rank for end in outcome.ranks]) == (2, [0, 1])
    assert first.final_record and first.checkpoint is not None and first.checkpoint.intact
    assert not (two.boxes[1].path / layout.CHECKPOINTS / "latest.json").exists()
    make_data(box)
    assert start_ranks(box, 2).wait() == [0, 0], box.log(0)
    assert two.boxes[0].losses() == box.losses()


@pytest.mark.slow
def test_a_rank_that_is_killed_ends_both_nodes_and_both_name_it(cluster: Callable[..., Cluster]) -> None:
    two = cluster(steps=1_000_000, checkpoint_every=1_000_000, log_every=1000)
    eventually(lambda: two.rank(0)["step"] > 2 and two.rank(1)["step"] > 2)
    environ = Path(f"/proc/{two.rank(1)['pid']}/environ").read_bytes().split(b"\0")
    assert f"GLOO_SOCKET_IFNAME={two.machines[1].interface}".encode() in environ
    os.kill(two.rank(1)["pid"], signal.SIGKILL)
    killed_at = time.time()
    for outcome in two.outcomes():
        assert outcome.reason == "signal"
        assert outcome.detail.startswith("rank 1 was killed by SIGKILL at step ")
        assert outcome.first_failure is not None
        assert (outcome.first_failure.rank, outcome.first_failure.signal) == (1, "SIGKILL")
        assert outcome.ended_at - killed_at < LONGEST_S
