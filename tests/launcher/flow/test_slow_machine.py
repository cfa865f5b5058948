"""A machine that trains far below what its kind has shown is named once, and `why` repeats it."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakebox import Training
from tests.launcher.faults import launch_killed
from tests.launcher.slow_world import FAST, SLOW, STEPS, earlier_runs, long_job, slow_world
from tests.launcher.terminal import Terminal
from tests.launcher.world import RUN_ID, World
from vastrun.launcher.core import Run
from vastrun.launcher.decisions.history import Speed
from vastrun.launcher.decisions.slow_training import slow_machine_text

NAMED = "trains at 0.10 of the speed of earlier runs on RTX 4090 x2 (10 steps/s, 3 runs)"
KIND = "RTX 4090 x1"
SHOWN = Speed(steps_per_s=10.0, runs=5)


def named(world: World) -> list[str]:
    return [event.text for event in world.ledger.events(RUN_ID) if event.text.startswith("trains at ")]


@pytest.mark.slow
def test_why_says_that_the_machine_was_slow(tmp_path: Path) -> None:
    desk = Terminal(tmp_path, SLOW)
    desk.job.write_text(
        "name: demo\nresources: {gpus: 2}\nlimits: {hours: 5, usd: 30}\ntrain: {steps: 3000, batch: 8}\n"
    )
    for run in earlier_runs(long_job()):
        desk.ledger.add(run)

    assert desk.launch().exit_code == 0

    assert f"machine  {NAMED}" in desk.type("why", "last").stdout
    assert desk.document("why", "last")["slow_machine"] == NAMED


@pytest.mark.parametrize(
    ("former", "training"),
    [
        (earlier_runs(long_job(), hosts=("a", "b")), SLOW),
        (earlier_runs(long_job(), hosts=("a", "b", "host-1")), SLOW),
        (earlier_runs(long_job(), steps_per_s=1.6), SLOW),
        (earlier_runs(long_job(env={"OTHER": "work"})), SLOW),
        (earlier_runs(long_job()), FAST),
    ],
    ids=["two runs", "its own host", "not far below", "another shape", "as fast"],
)
@pytest.mark.slow
def test_no_machine_is_slow_without_cause(former: list[Run], training: Training, tmp_path: Path) -> None:
    fine = slow_world(tmp_path, long_job(), training=training, former=former)
    assert fine.launch().cause is None
    assert not named(fine)


@pytest.mark.parametrize(("steps_per_s", "is_slow"), [(12.0, False), (6.5, True)])
def test_the_machine_of_several_stages_is_measured_by_the_work_of_their_steps(
    steps_per_s: float, is_slow: bool, tmp_path: Path
) -> None:
    # The first stage has 3, the second 4 passes: 10 mean steps a second are 11.7 of the first and 8.75 of the
    # second one.
    job = long_job()
    assert job.train is not None
    job = replace(job, train=replace(job.train, steps=STEPS // 2, stages=("operator", "refine")))
    pace = Training(seconds=STEPS / steps_per_s, steps=STEPS, checkpoint_every=10)
    world = slow_world(tmp_path, job, training=pace, former=earlier_runs(job))
    world.launch()
    said = "trains at 0.56 of the speed of earlier runs on RTX 4090 x2 (10 steps/s, 3 runs)"
    assert named(world) == ([said] if is_slow else [])


@pytest.mark.slow
def test_a_launcher_that_resumes_the_run_names_its_machine_no_second_time(tmp_path: Path) -> None:
    slow = slow_world(tmp_path, long_job())
    launch_killed(slow, "output_store.download_log", "after", nth=1200)
    assert named(slow) == [NAMED]
    assert slow.resume().cause is None
    assert named(slow) == [NAMED]


@pytest.mark.parametrize(
    ("steps_per_s", "shown", "slow"),
    [
        (4.1, SHOWN, True),
        (5.99, SHOWN, True),
        (6.0, SHOWN, False),
        (12.0, SHOWN, False),
        (0.1, Speed(steps_per_s=10.0, runs=3), True),
        (0.1, Speed(steps_per_s=10.0, runs=2), False),
    ],
)
def test_a_machine_is_slow_below_three_fifths_of_what_three_runs_have_shown(
    steps_per_s: float, shown: Speed, slow: bool
) -> None:
    assert bool(slow_machine_text(KIND, steps_per_s, shown)) is slow


def test_a_kind_that_nobody_has_measured_is_never_slow() -> None:
    assert not slow_machine_text(KIND, 0.1, None)


def test_it_is_named_with_its_share_its_kind_and_what_that_has_shown() -> None:
    assert slow_machine_text(KIND, 5.043, Speed(steps_per_s=12.3, runs=5)) == (
        "trains at 0.41 of the speed of earlier runs on RTX 4090 x1 (12.3 steps/s, 5 runs)"
    )
