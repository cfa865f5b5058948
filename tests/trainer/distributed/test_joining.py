"""A machine that comes in place of one that left: a supervisor of its own, and the training of the others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.ports import free_port
from tests.trainer.conftest import SMALL, Box
from tests.trainer.test_training import make_data
from tests.waiting import LONGEST_S, eventually
from vastrun.contract import layout
from vastrun.contract.outcome import Outcome
from vastrun.trainer.checkpoints.contents import MODEL, OUTER
from vastrun.trainer.checkpoints.metadata import read_metadata
from vastrun.trainer.checkpoints.reader import read_tensors

pytestmark = [pytest.mark.torch, pytest.mark.needs("torchft"), pytest.mark.slow, pytest.mark.timeout(400)]

GATED = """
import os
from pathlib import Path
from tests.waiting import eventually
from vastrun.trainer.data import advection
from vastrun.trainer.data.trajectories import TrajectoryTask

GATES = {("node-0", 13): "go-on", ("node-1", 6): "never", ("node-0", 25): "ends"}

class Gated(TrajectoryTask):
    def batch(self, step, indices):
        box = Path(os.environ["VASTRUN_BOX"])
        gate = GATES.get((box.name, step))
        if gate is not None:
            eventually((box / gate).exists)
        return super().batch(step, indices)

def make(config, folder):
    box = Path(os.environ["VASTRUN_BOX"])
    if box.name == "late-1":
        (box / "is-late").touch()
        eventually((box / "never").exists)
    return Gated(*advection.load(config, folder))

generate = advection.generate
"""
"""A task that holds node 1 before the second meeting, node 0 after the third and the sixth, a late machine at
once."""
NODES, STEPS = 3, 32


class Cluster:
    """Machines of this computer, each a supervisor with a rank."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, free_port(2)
        self.supervisors: dict[str, subprocess.Popen[bytes]] = {}
        self.boxes: dict[str, Box] = {}

    def rent(self, name: str, node: int, **variables: str) -> None:
        """Start the supervisor of another machine, for that node."""
        diloco = {"every": 4, "min_nodes": 1}
        data = {**SMALL["data"], "task": "gated:make"}
        train = {"steps": STEPS, "batch": 12, "strategy": "diloco", "diloco": diloco, "data": data}
        box = self.boxes[name] = Box(self._folder / name, **train)
        job = {**box.json(layout.JOB), "ranks": 1, "nodes": NODES}
        (box.path / layout.JOB).write_text(json.dumps(job))
        (box.path / layout.CODE).mkdir()
        (box.path / layout.CODE / "gated.py").write_text(GATED)
        make_data(box)
        place = {"VASTRUN_NODE": str(node), "VASTRUN_RENDEZVOUS": f"127.0.0.1:{self._port}", **variables}
        root = str(Path(layout.__file__).parents[2])
        environ = os.environ | place | {"VASTRUN_BOX": str(box.path), "PYTHONPATH": root}
        command = [sys.executable, "-P", "-m", "vastrun.trainer.supervise"]
        self.supervisors[name] = subprocess.Popen(command, env=environ)

    def open(self, *gates: str) -> None:
        """Let node 0 go on there."""
        for gate in gates:
            (self.boxes["node-0"].path / gate).touch()

    def log(self, name: str) -> str:
        path = self.boxes[name].path / layout.LOG
        return path.read_text() if path.exists() else ""

    def outcome(self, name: str) -> Outcome:
        """What the supervisor wrote, after its end."""
        self.supervisors[name].wait(LONGEST_S)
        return Outcome.from_json((self.boxes[name].path / layout.OUTCOME).read_text())

    def weights(self, name: str) -> dict[str, torch.Tensor]:
        """Those of the last checkpoint, and what the outer optimiser keeps."""
        folder = self.boxes[name].path / layout.CHECKPOINTS / f"step-{STEPS:06d}"
        saved = read_metadata(folder).state_dict_metadata.items()
        found = {
            key: torch.empty(about.size, dtype=about.properties.dtype)
            for key, about in saved
            if key.startswith((MODEL, OUTER))
        }
        read_tensors(folder, found)
        return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Nodes of which one has left, and the others train on. What still runs at the end is killed."""
    made = Cluster(tmp_path)
    try:
        for node in range(NODES):
            made.rent(f"node-{node}", node)
        eventually(lambda: "outer step after step 4: node 0, 1, 2" in made.log("node-0"))
        made.supervisors["node-1"].kill()
        eventually(lambda: "outer step after step 12: node 0, 2; without node 1" in made.log("node-0"))
        yield made
    finally:
        for supervisor in made.supervisors.values():
            supervisor.kill()
            supervisor.wait()


def test_a_new_machine_joins_a_training_under_way_and_ends_with_the_weights_of_all(cluster: Cluster) -> None:
    cluster.rent("another-1", 1, VASTRUN_JOINS="1")
    eventually(lambda: "this node joins a running training" in cluster.log("another-1"))
    cluster.open("go-on", "ends")

    for name in ("node-0", "node-2", "another-1"):
        outcome = cluster.outcome(name)
        assert (outcome.reason, outcome.detail) == ("finished", "all 3 ranks exited 0"), cluster.log(name)
        assert (outcome.world_size, [end.rank for end in outcome.ranks]) == (NODES, [0, 1, 2])
    log = cluster.log("node-0")
    assert f"outer step after step {STEPS}: node 0, 1, 2" in log
    assert cluster.boxes["node-0"].losses().keys() == set(range(1, STEPS + 1))
    assert "rank1 training resumes after step" in cluster.log("another-1")
    ours, theirs = cluster.weights("node-0"), cluster.weights("another-1")
    assert ours.keys() == theirs.keys() and len(ours) > 3
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_machine_whose_ranks_are_not_ready_when_the_others_are_done_ends_at_once(cluster: Cluster) -> None:
    cluster.rent("late-1", 1, VASTRUN_JOINS="1")
    eventually((cluster.boxes["late-1"].path / "is-late").exists)
    cluster.open("go-on", "ends")

    late, first = cluster.outcome("late-1"), cluster.outcome("node-0")
    assert (late.reason, late.detail) == ("stopped", "the training was over before this node joined it")
    assert (first.reason, first.detail) == ("finished", "all 2 ranks exited 0"), cluster.log("node-0")
    assert [end.rank for end in first.ranks] == [0, 2, 1]


def test_ranks_of_a_machine_that_joined_are_started_again_with_those_of_the_others(cluster: Cluster) -> None:
    cluster.rent("another-1", 1, VASTRUN_JOINS="1")
    eventually(lambda: "this node joins a running training" in cluster.log("another-1"))
    cluster.open("go-on")
    eventually(lambda: "outer step after step 24: node 0, 1, 2" in cluster.log("node-0"))
    status = json.loads((cluster.boxes["node-0"].path / layout.STATUS).read_text())
    os.kill(status["ranks"][0]["pid"], signal.SIGKILL)
    cluster.open("ends")

    for name in ("node-0", "node-2", "another-1"):
        outcome = cluster.outcome(name)
        assert [start.reason for start in outcome.starts] == ["signal", "finished"], cluster.log(name)
        assert outcome.detail == "all 3 ranks exited 0"
        assert "restart 1 on 1 rank(s) on each of 3 nodes" in cluster.log(name)
    assert f"outer step after step {STEPS}: node 0, 1, 2" in cluster.log("node-0")
