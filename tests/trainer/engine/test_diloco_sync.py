"""Nodes that train apart and meet: the outer step by hand, exact resumption, a node that leaves."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from tests.trainer import sessions
from tests.trainer.conftest import SMALL, Box, ended
from tests.trainer.nodes import RunningNodes, boxes_of
from tests.trainer.test_training import make_data
from tests.waiting import eventually
from vastrun.contract import layout
from vastrun.trainer.checkpoints.reader import read_tensors, state_of
from vastrun.trainer.distributed.exit import exit_code_of
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.distributed.rank import Rank
from vastrun.trainer.heartbeat import read_beat

pytestmark = [pytest.mark.torch, pytest.mark.needs("torchft"), pytest.mark.timeout(300)]

NEVER_COMES = """
import os
from pathlib import Path
from tests.waiting import eventually
from vastrun.trainer.data import advection
from vastrun.trainer.data.trajectories import TrajectoryTask

class Late(TrajectoryTask):
    def batch(self, step, indices):
        box = Path(os.environ["VASTRUN_BOX"])
        if box.name == "node-1" and step == 3:
            eventually((box / "never").exists)
        return super().batch(step, indices)

def make(config, folder):
    return Late(*advection.load(config, folder))

generate = advection.generate
"""
"""A task with which node 1 does not come to the first meeting."""

LEAVES = """
import os
from pathlib import Path
from tests.waiting import eventually
from vastrun.trainer.data import advection
from vastrun.trainer.data.trajectories import TrajectoryTask

class Gated(TrajectoryTask):
    def batch(self, step, indices):
        box = Path(os.environ["VASTRUN_BOX"])
        if box.name == "node-1" and step == 6:
            eventually((box / "never").exists)
        return super().batch(step, indices)

def make(config, folder):
    return Gated(*advection.load(config, folder))

generate = advection.generate
"""
"""A task with which node 1 stands still before the second meeting."""

EVERY, STEPS = 4, 8
LR, MOMENTUM = 0.6, 0.8
JOB: dict[str, Any] = {
    "steps": STEPS,
    "checkpoint_every": EVERY,
    "diloco": {"every": EVERY, "outer_lr": LR, "outer_momentum": MOMENTUM},
}


def trained(boxes: Sequence[Box]) -> Sequence[Box]:
    for box in boxes:
        make_data(box)
    with RunningNodes(boxes) as running:
        assert running.wait() == [0] * len(boxes), boxes[0].log(0)
    return boxes


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, fork_server: None) -> Sequence[Box]:
    """Two nodes that trained to the end."""
    return trained(boxes_of(tmp_path_factory.mktemp("finished"), 2, **JOB))


def saved(box: Box, step: int, prefix: str, like: dict[str, Tensor]) -> dict[str, Tensor]:
    tensors = {name: torch.empty_like(tensor) for name, tensor in like.items() if name.startswith(prefix)}
    read_tensors(box.path / layout.CHECKPOINTS / f"step-{step:06d}", tensors)
    return tensors


def same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.fixture
def fresh(tmp_path: Path) -> Box:
    """A box in which nothing was trained."""
    box = Box(tmp_path / "fresh", strategy="diloco", **JOB)
    make_data(box)
    return box


def begun(alone: Ranks, node: int, box: Box) -> sessions.Session:
    place = Rank(rank=0, local_rank=0, world_size=1, box=box.path, node=node, nodes=2)
    return sessions.begin(replace(alone, rank=place), box.path, {"strategy": "diloco", **JOB})


@pytest.mark.slow
def test_the_nodes_follow_nesterovs_momentum_along_their_mean_way(
    alone: Ranks, finished: Sequence[Box], fresh: Box
) -> None:
    nodes = [begun(alone, node, fresh) for node in (0, 1)]
    weights = parameters_to_vector(nodes[0].operator.parameters()).detach().clone()
    momentum = torch.zeros_like(weights)
    for first in range(0, STEPS, EVERY):
        gradients = []
        for session in nodes:
            sessions.learn(session, first, first + EVERY)
            gradients.append(weights - parameters_to_vector(session.operator.parameters()).detach())
        gradient = (gradients[0] + gradients[1]) / 2
        momentum = MOMENTUM * momentum + gradient
        weights = weights - LR * (gradient + MOMENTUM * momentum)
        for session in nodes:
            vector_to_parameters(weights.clone(), session.operator.parameters())
    assert not torch.equal(gradients[0], gradients[1])  # each has a share of its own
    like = nodes[0].tensors()
    for session in nodes:
        session.loader.close()
    expected = {name: tensor for name, tensor in like.items() if name.startswith("model.")}
    for box in finished:
        for name, tensor in saved(box, STEPS, "model.", like).items():
            torch.testing.assert_close(tensor, expected[name], rtol=1e-5, atol=1e-6)
    assert saved(finished[0], STEPS, "outer.momentum", like)["outer.momentum"].equal(
        saved(finished[1], STEPS, "outer.momentum", like)["outer.momentum"]
    )
    state = state_of(finished[0].path / layout.CHECKPOINTS / f"step-{STEPS:06d}")
    assert state.samples == STEPS * 8


def test_only_node_0_has_metrics_and_the_final_record(finished: Sequence[Box]) -> None:
    first, second = finished
    assert first.losses().keys() == set(range(1, STEPS + 1))
    assert not (second.path / layout.METRICS).exists()
    assert not (second.path / layout.FINAL).exists()
    assert first.json(layout.FINAL)["step"] == STEPS


def continued(folder: Path, finished: Sequence[Box], *, on: Sequence[int]) -> Sequence[Box]:
    """Nodes of which these have the checkpoint of the first meeting."""
    boxes = boxes_of(folder, len(finished), **JOB)
    for node in on:
        name = Path(layout.CHECKPOINTS, f"step-{EVERY:06d}")
        shutil.copytree(finished[node].path / name, boxes[node].path / name)
    return trained(boxes)


@pytest.mark.slow
def test_nodes_that_begin_again_learn_as_if_they_had_gone_on(
    tmp_path: Path, alone: Ranks, finished: Sequence[Box], fresh: Box
) -> None:
    boxes = continued(tmp_path / "again", finished, on=(0, 1))
    expected = finished[0].losses()
    assert boxes[0].losses() == {step: expected[step] for step in range(EVERY + 1, STEPS + 1)}
    session = begun(alone, 0, fresh)
    like = {name: tensor for name, tensor in session.tensors().items() if name != "outer.counts"}
    session.loader.close()
    for box, other in zip(boxes, finished, strict=True):
        assert same(saved(box, STEPS, "", like), saved(other, STEPS, "", like))


@pytest.mark.slow
def test_a_node_that_comes_with_nothing_goes_on_from_the_state_of_another(
    tmp_path: Path, alone: Ranks, finished: Sequence[Box], fresh: Box
) -> None:
    boxes = continued(tmp_path / "new", finished, on=(0,))
    assert f"training resumes after step {EVERY}" in boxes[1].log(0)
    assert min(boxes[0].losses()) == EVERY + 1
    session = begun(alone, 0, fresh)
    like = session.tensors()
    session.loader.close()
    for prefix in ("model.", "outer."):
        assert same(saved(boxes[0], STEPS, prefix, like), saved(boxes[1], STEPS, prefix, like))


@pytest.mark.slow
def test_a_node_that_waits_for_another_saves_when_it_is_stopped_and_they_meet_later(
    tmp_path: Path, alone: Ranks, fresh: Box
) -> None:
    boxes = boxes_of(tmp_path / "stopped", 2, **JOB, data={**SMALL["data"], "task": "late:make"})
    for box in boxes:
        (box.path / layout.CODE).mkdir()
        (box.path / layout.CODE / "late.py").write_text(NEVER_COMES)
        make_data(box)
    beat = boxes[0].path / layout.HEARTBEATS / "rank-0"
    with RunningNodes(boxes) as running:
        first, second = running.processes
        eventually(lambda: (found := read_beat(beat)) is not None and found.step == EVERY - 1)
        first.terminate()
        assert ended(first) == exit_code_of("stopped"), boxes[0].log(0)
        second.kill()
    assert state_of(boxes[0].path / layout.CHECKPOINTS / f"step-{EVERY:06d}").step == EVERY

    trained(boxes_of(tmp_path / "stopped", 2, **JOB))
    session = begun(alone, 0, fresh)
    like = session.tensors()
    session.loader.close()
    for prefix in ("model.", "outer."):
        assert same(saved(boxes[0], STEPS, prefix, like), saved(boxes[1], STEPS, prefix, like))
    assert saved(boxes[0], STEPS, "outer.counts", like)["outer.counts"].tolist() == [4, 1, 0]


def took_part(box: Box) -> dict[int, str]:
    """Who gave a pseudo-gradient, by the step after which the nodes met."""
    if not (box.path / "rank-0.log").exists():
        return {}
    said = re.findall(r"^outer step after step (\d+): (.*)$", box.log(0), re.MULTILINE)
    return {int(step): who for step, who in said}


@pytest.mark.slow
def test_a_node_leaves_while_the_other_trains(tmp_path: Path) -> None:
    steps = 40
    averaged = {"every": EVERY, "outer_lr": 1.0, "outer_momentum": 0.0}
    job = {**JOB, "steps": steps, "diloco": {**averaged, "min_nodes": 1}}
    boxes = boxes_of(tmp_path, 2, **job, data={**SMALL["data"], "task": "gated:make"})
    for box in boxes:
        (box.path / layout.CODE).mkdir()
        (box.path / layout.CODE / "gated.py").write_text(LEAVES)
        make_data(box)
    with RunningNodes(boxes) as running:
        eventually(lambda: 4 in took_part(boxes[0]))
        running.processes[1].kill()
        assert running.wait() == [0, -signal.SIGKILL], boxes[0].log(0)
    who = took_part(boxes[0])
    assert who == {4: "node 0, 1", **dict.fromkeys(range(8, steps + 1, EVERY), "node 0; without node 1")}
    losses = [boxes[0].losses()[step] for step in sorted(boxes[0].losses())]
    assert mean(losses[-8:]) < mean(losses[8:16]) < mean(losses[:8]), losses
    state = state_of(boxes[0].path / layout.CHECKPOINTS / f"step-{steps:06d}")
    assert state.samples == EVERY * 8 + (steps - EVERY) * 4
