"""Whether a training has begun, and what it does until then, as a look at its box shows it."""

from __future__ import annotations

import pytest

from tests.jobs import command_job, train_job
from vastrun.launcher.core import BoxStatus, RankStatus
from vastrun.launcher.core.job import JobSpec, Success
from vastrun.launcher.flow.progress import MIN_ALIVE_S, TrainingStartDetector, activity_of

TRAINER, SILENT = train_job(), command_job()
TRAINER_OF_TWO, SILENT_OF_TWO = train_job(nodes=2), command_job(nodes=2)
"""On two machines: each shows its own ranks only."""
BEATING = command_job(success=Success(steps=100))


def box_status(*activities: str, step: int = 0, onstart_step: str = "50-train") -> BoxStatus:
    """Of ranks in these activities."""
    ranks = tuple(
        RankStatus(rank=rank, pid=7, step=step, activity=activity, age_s=0.0)
        for rank, activity in enumerate(activities)
    )
    return BoxStatus(at=0.0, box="running", onstart_step=onstart_step, step=step, ranks=ranks)


@pytest.mark.parametrize(
    ("looks", "spec", "begun"),
    [
        ([box_status("forward", "data")], TRAINER, False),
        ([box_status("forward", "data"), box_status("forward", "data", step=1)], TRAINER, True),
        ([box_status("start", "start"), box_status("data", "data", step=500)], TRAINER, False),
        ([box_status("data", "data", step=500), box_status("data", "data", step=501)], TRAINER, True),
        ([box_status("", ""), box_status("data", "start")], BEATING, False),
        ([box_status("", "step")], BEATING, True),
        ([box_status("", "")] * 100, BEATING, False),
        ([box_status("", "")] * 2, SILENT, False),
        ([box_status("", "")] * 7, SILENT, True),
        ([box_status("")] * 7, SILENT, False),
        ([box_status("data", "data")] * 7, SILENT, False),
        ([box_status("", "")] * 7, SILENT_OF_TWO, True),
    ],
)
def test_a_training_begins_with_a_step_or_with_ranks_that_live(
    looks: list[BoxStatus], spec: JobSpec, begun: bool
) -> None:
    beginning = TrainingStartDetector()
    for second, look in enumerate(looks):
        beginning.observe(look, spec, second * MIN_ALIVE_S / 5)
    assert beginning.has_started is begun


@pytest.mark.parametrize(
    ("look", "spec", "text"),
    [
        (box_status(onstart_step="40-data"), TRAINER, "40-data"),
        (box_status(), TRAINER, "importing torch, starting the ranks"),
        (box_status("start"), TRAINER, "importing torch, starting the ranks"),
        (box_status("start", "data"), TRAINER, "preparing the ranks"),
        (box_status("data", "forward"), TRAINER, "loading data"),
        (box_status("data", "forward", step=3), TRAINER, ""),
        (box_status("data", "forward", step=3), TRAINER_OF_TWO, ""),
        (box_status("forward", "compile"), TRAINER, "compiling the model"),
        (box_status("eval", "forward", step=3), TRAINER, "evaluating"),
        (box_status("", ""), SILENT, "running"),
        (box_status("", ""), BEATING, "starting the program"),
        (BoxStatus(at=0.0, box="ended"), TRAINER, ""),
    ],
)
def test_what_is_done_is_told_by_the_rank_that_is_furthest_behind(
    look: BoxStatus, spec: JobSpec, text: str
) -> None:
    assert activity_of(look, spec) == text
