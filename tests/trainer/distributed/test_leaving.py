"""A machine that vanishes with its supervisor while nodes train apart, and the training of the others."""

from __future__ import annotations

import json
import os
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

class Gated(TrajectoryTask):
    def batch(self, step, indices):
        box = Path(os.environ["VASTRUN_BOX"])
        if (box.name, step) == ("node-1", 6):
            eventually((box / "never").exists)
        return super().batch(step, indices)

def make(config, folder):
    return Gated(*advection.load(config, folder))

generate = advection.generate
"""
"""A task that holds node 1 before the second meeting."""
NODES, STEPS = 3, 16


class Cluster:
    """Machines of this computer, each a supervisor with a rank."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, free_port(2)
        self.supervisors: dict[str, subprocess.Popen[bytes]] = {}
        self.boxes: dict[str, Box] = {}

    def rent(self, node: int) -> None:
        """Start the supervisor of that node."""
        name = f"node-{node}"
        diloco = {"every": 4, "min_nodes": 1}
        data = {**SMALL["data"], "task": "gated:make"}
        train = {"steps": STEPS, "batch": 12, "strategy": "diloco", "diloco": diloco, "data": data}
        box = self.boxes[name] = Box(self._folder / name, **train)
        job = {**box.json(layout.JOB), "ranks": 1, "nodes": NODES}
        (box.path / layout.JOB).write_text(json.dumps(job))
        (box.path / layout.CODE).mkdir()
        (box.path / layout.CODE / "gated.py").write_text(GATED)
        make_data(box)
        place = {"VASTRUN_NODE": str(node), "VASTRUN_RENDEZVOUS": f"127.0.0.1:{self._port}"}
        root = str(Path(layout.__file__).parents[2])
        environ = os.environ | place | {"VASTRUN_BOX": str(box.path), "PYTHONPATH": root}
        command = [sys.executable, "-P", "-m", "vastrun.trainer.supervise"]
        self.supervisors[name] = subprocess.Popen(command, env=environ)

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
    """Nodes that have met once. What still runs at the end is killed."""
    made = Cluster(tmp_path)
    try:
        for node in range(NODES):
            made.rent(node)
        eventually(lambda: "outer step after step 4: node 0, 1, 2" in made.log("node-0"))
        yield made
    finally:
        for supervisor in made.supervisors.values():
            supervisor.kill()
            supervisor.wait()


def test_the_others_train_to_the_end_without_a_machine_that_vanished(cluster: Cluster) -> None:
    cluster.supervisors["node-1"].kill()

    for name in ("node-0", "node-2"):
        outcome = cluster.outcome(name)
        assert (outcome.reason, outcome.detail) == ("finished", "all 2 ranks exited 0"), cluster.log(name)
        assert [end.rank for end in outcome.ranks if end.exit_code == 0] == [0, 2]
    log = cluster.log("node-0")
    assert f"outer step after step {STEPS}: node 0, 2; without node 1" in log
    assert cluster.boxes["node-0"].losses().keys() == set(range(1, STEPS + 1))
    ours, theirs = cluster.weights("node-0"), cluster.weights("node-2")
    assert ours.keys() == theirs.keys() and len(ours) > 3
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
