"""Several tasks at once, of any dimension, with and without time: one training, however it is spread."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.trainer import sessions
from tests.trainer.conftest import together
from tests.trainer.sessions import Curve
from vastrun.contract import layout
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.distributed.rank import Heartbeat
from vastrun.trainer.engine.step import train_step
from vastrun.trainer.telemetry.metrics import MetricsPoint
from vastrun.trainer.telemetry.reports import Readings, Reports

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

COMMON = {"train": 16, "test": 4, "points": 16, "frames": 6}
DATA = [
    {"task": "advection", "betas": [1.0], **COMMON},
    {"task": "darcy", "keep": "host", **COMMON},
    {"task": "diffusion_reaction", **COMMON},
]
TASKS = {"data": DATA}
ONE: dict[str, dict[str, Any]] = {"single": TASKS}
TWO: dict[str, dict[str, Any]] = {
    "ddp": {**TASKS, "strategy": "ddp"},
    "fsdp2": {**TASKS, "strategy": "fsdp2"},
}
MORE_ONE: dict[str, dict[str, Any]] = {"single halves": {**TASKS, "micro_batch": 4}}
MORE_TWO: dict[str, dict[str, Any]] = {
    "fsdp2 halves": {**TASKS, "strategy": "fsdp2", "micro_batch": 2},
    "fsdp2 bf16": {**TASKS, "strategy": "fsdp2", "precision": "bf16"},
    "ddp by size": {**TASKS, "strategy": "ddp", "mixing": "proportional", "turns": 2},
}


@pytest.mark.slow
@pytest.mark.parametrize(("more_one", "more_two"), [({}, {}), (MORE_ONE, MORE_TWO)], ids=["some", "all"])
def test_a_training_of_several_tasks_is_the_same_however_it_is_spread(
    more_one: dict[str, dict[str, Any]], more_two: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    box = sessions.prepare(tmp_path / "box", **TASKS)
    curves: dict[str, Curve] = together(sessions.curves, 1, box, ONE | more_one, within_s=200)[0]
    first, second = together(sessions.curves, 2, box, TWO | more_two, within_s=200)
    assert all(first[name].losses == second[name].losses for name in first)
    curves |= first
    assert curves["fsdp2"].losses == curves["ddp"].losses
    assert curves["fsdp2"].norms == curves["ddp"].norms
    for name in curves.keys() & {"ddp", "single halves", "fsdp2 halves"}:
        assert curves[name].losses == pytest.approx(curves["single"].losses, abs=1e-5), name
        assert curves[name].losses[-1] < 0.9 * curves[name].losses[0], name
    if "fsdp2 bf16" in curves:
        assert curves["fsdp2 bf16"].losses == pytest.approx(curves["single"].losses, abs=0.02)
    gradients = curves["ddp"].gradients
    for name, gradient in curves["single"].gradients.items():
        assert gradient.allclose(gradients[name], rtol=1e-4, atol=1e-6), name


@dataclass
class Points:
    """What a report would write."""

    added: list[MetricsPoint] = field(default_factory=list)

    def add(self, point: MetricsPoint) -> None:
        self.added.append(point)


Turns = list[dict[str, float]]
"""The losses of some steps' turns, by task."""


def reported(ranks: Ranks, box: Path, settings: dict[str, Any]) -> tuple[Turns, list[MetricsPoint]]:
    """The losses of the turns of six steps, and the points after every third."""
    session, points, turns = sessions.begin(ranks, box, settings), Points(), []
    reports = Reports(session, points if ranks.rank.is_first else None, Readings.of(ranks.device))
    heart = Heartbeat(box / layout.HEARTBEATS / f"rank-{ranks.rank.rank}")
    for step in range(6):
        session, losses = train_step(session, step, heart)
        tasks = [DATA[task]["task"] for task in session.task_schedule.tasks_of(step)]
        turns.append(dict(zip(tasks, ranks.mean_of(losses[0])[1:], strict=True)))
        reports.add(step, losses)
        if step % 3 == 2:
            reports.report(step + 1, losses)
    session.loader.close()
    return turns, points.added


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_loss_of_each_task_is_its_mean_since_the_report_before(ranks: int, tmp_path: Path) -> None:
    box = sessions.prepare(tmp_path / "box", **TASKS)
    turns, points = together(reported, ranks, box, {**TASKS, "micro_batch": 4 // ranks})[0]
    for part, point in zip((turns[:3], turns[3:]), points, strict=True):
        for data in DATA:
            mean = sum(losses[data["task"]] for losses in part) / 3
            assert point.task_losses[data["task"]] == pytest.approx(mean, rel=1e-5)
        assert point.loss == pytest.approx(sum(part[-1].values()) / 3, rel=1e-5)


def activities(ranks: Ranks, box: Path, settings: dict[str, Any]) -> list[tuple[int, str]]:
    """Of the only turn of each step, its task and what the rank is said to do; a second start at step 6."""
    session = sessions.begin(ranks, box, settings)
    session.loader.close()
    found = []
    for step in range(12):
        since = session if step < 6 else replace(session, start=6)
        task = session.task_schedule.place(step, 0).task
        found.append((task, since.activity_of(step, task, "forward")))
    return found


@pytest.mark.slow
def test_a_task_that_is_seen_for_the_first_time_is_compiled_in_whatever_step(tmp_path: Path) -> None:
    box = sessions.prepare(tmp_path / "box", **TASKS)
    found = together(activities, 1, box, {**TASKS, "turns": 1, "compile": "blocks"})[0]
    for start in (found[:6], found[6:]):
        tasks = [task for task, _ in start]
        assert len({*tasks}) == len(TASKS["data"])
        first = {tasks.index(task) for task in tasks}
        assert [activity for _, activity in start] == [
            "compile" if step in first else "forward" for step in range(len(start))
        ]
