"""Whether a training has begun, and what it does until then, as a look at its box shows it."""

from __future__ import annotations

import pytest

from launcher.core import RankSighting, Sighting
from launcher.core.job import JobSpec, Success
from launcher.flow.beginning import SETTLED_S, Beginning
from launcher.flow.progress import activity_of
from tests.fakes import command_job, train_job

TRAINER, SILENT = train_job(), command_job()
BEATING = command_job(success=Success(steps=100))


def sighting(*phases: str, step: int = 0, onstart_step: str = "50-train") -> Sighting:
    """Of ranks in these phases."""
    ranks = tuple(
        RankSighting(rank=rank, pid=7, step=step, phase=phase, age_s=0.0) for rank, phase in enumerate(phases)
    )
    return Sighting(at=0.0, box="running", onstart_step=onstart_step, step=step, ranks=ranks)


@pytest.mark.parametrize(
    ("looks", "spec", "begun"),
    [
        ([sighting("forward", "data")], TRAINER, False),
        ([sighting("forward", "data"), sighting("forward", "data", step=1)], TRAINER, True),
        ([sighting("start", "start"), sighting("data", "data", step=500)], TRAINER, False),
        ([sighting("data", "data", step=500), sighting("data", "data", step=501)], TRAINER, True),
        ([sighting("", ""), sighting("data", "start")], BEATING, False),
        ([sighting("", "step")], BEATING, True),
        ([sighting("", "")] * 100, BEATING, False),
        ([sighting("", "")] * 2, SILENT, False),
        ([sighting("", "")] * 7, SILENT, True),
        ([sighting("")] * 7, SILENT, False),
        ([sighting("data", "data")] * 7, SILENT, False),
    ],
)
def test_a_training_begins_with_a_step_or_with_ranks_that_live(
    looks: list[Sighting], spec: JobSpec, begun: bool
) -> None:
    beginning = Beginning()
    for second, look in enumerate(looks):
        beginning.saw(look, spec, second * SETTLED_S / 5)
    assert beginning.has_begun is begun


@pytest.mark.parametrize(
    ("look", "spec", "text"),
    [
        (sighting(onstart_step="40-data"), TRAINER, "40-data"),
        (sighting(), TRAINER, "importing torch, starting the ranks"),
        (sighting("start"), TRAINER, "importing torch, starting the ranks"),
        (sighting("start", "data"), TRAINER, "preparing the ranks"),
        (sighting("data", "forward"), TRAINER, "loading data"),
        (sighting("data", "forward", step=3), TRAINER, ""),
        (sighting("forward", "compile"), TRAINER, "compiling the model"),
        (sighting("eval", "forward", step=3), TRAINER, "evaluating"),
        (sighting("", ""), SILENT, "running"),
        (sighting("", ""), BEATING, "starting the program"),
        (Sighting(at=0.0, box="ended"), TRAINER, ""),
    ],
)
def test_what_is_done_is_told_by_the_rank_that_is_furthest_behind(
    look: Sighting, spec: JobSpec, text: str
) -> None:
    assert activity_of(look, spec) == text
