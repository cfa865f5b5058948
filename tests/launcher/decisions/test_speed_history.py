"""What earlier runs have shown of machines: how fast they train this job, how long they take to start."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakebox import Loading, Training
from tests.jobs import train_job
from tests.launcher.world import World
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import MeasuredRun
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.history import MAX_RUNS, Speed, SpeedHistory, speed_history_of
from vastrun.trainer.job.config import TrainConfig

JOB = train_job()


def run(
    steps_per_s: float | None, spec: JobSpec = JOB, *, gpu: str = "RTX 4090", host: str = "h1"
) -> MeasuredRun:
    return MeasuredRun(
        provider="vast",
        host=host,
        gpu_name=gpu,
        gpus=2,
        gpu_memory_gb=24.0,
        spec_json=dump_job(spec),
        steps_per_s=steps_per_s,
        boot_s=60.0 if host == "h1" else 600.0,
    )


def test_the_speed_of_a_kind_of_machine_is_the_median_of_the_runs_on_it() -> None:
    runs = [run(2.0), run(9.0), run(3.0), run(None), run(5.0, gpu="A100 SXM4", host="h2")]
    assert speed_history_of(runs, "vast", JOB) == SpeedHistory(
        speeds={
            ("RTX 4090", 2): Speed(steps_per_s=3.0, runs=3),
            ("A100 SXM4", 2): Speed(steps_per_s=5.0, runs=1),
        },
        boot_s={"h1": 60.0, "h2": 600.0},
    )
    assert speed_history_of(runs, "local", JOB) == SpeedHistory()


def test_how_often_machines_were_taken_away_is_learned_from_bids() -> None:
    taken, kept = (replace(run(None), bid_hours=hours) for hours in (6.0, 24.0))
    bids = [replace(taken, preempted=True), kept]
    assert speed_history_of([], "vast", JOB).preemptions_per_hour == 0.1
    assert speed_history_of([*bids, run(2.0)], "vast", JOB).preemptions_per_hour == 2 / 40


@pytest.mark.parametrize(
    ("other", "counts"),
    [
        (train_job(steps=5000), True),
        (train_job(limits=replace(JOB.limits, hours=9.0)), True),
        (train_job(train=TrainConfig(steps=10, batch=16)), False),
        (train_job(name="another"), True),
        (train_job(ranks=4), False),
    ],
    ids=["longer", "other limits", "a larger batch", "another name", "more ranks"],
)
def test_only_runs_whose_steps_were_the_same_work_count(other: JobSpec, counts: bool) -> None:
    assert bool(speed_history_of([run(2.0, other)], "vast", JOB).speeds) is counts


def test_only_the_newest_runs_of_a_kind_count() -> None:
    runs = [*[run(2.0)] * MAX_RUNS, *[run(9.0)] * MAX_RUNS]
    (speed,) = speed_history_of(runs, "vast", JOB).speeds.values()
    assert speed == Speed(steps_per_s=2.0, runs=MAX_RUNS)


def test_a_host_s_own_runs_can_be_left_out() -> None:
    runs = [run(1.0, host="slow"), run(2.0), run(2.0)]
    history = speed_history_of(runs, "vast", JOB, excluded_host="slow")
    assert history.speeds["RTX 4090", 2] == Speed(steps_per_s=2.0, runs=2)


def test_a_job_that_cannot_count_is_not_even_read() -> None:
    broken = replace(run(None), spec_json="{")
    other = replace(run(2.0), provider="local", spec_json="{")
    late = replace(run(2.0), spec_json="{")
    runs = [broken, other, *[run(2.0)] * MAX_RUNS, late]
    assert speed_history_of(runs, "vast", JOB).speeds["RTX 4090", 2].runs == MAX_RUNS


def test_a_run_notes_how_fast_it_trained_and_how_long_its_machine_took(tmp_path: Path) -> None:
    world = World(tmp_path, spec=train_job(steps=60), training=Training(seconds=120.0, steps=60))
    world.market.loading["host-1"] = Loading(seconds=120.0, layer_s=20.0)
    ended = world.launch()
    assert ended.cause is None, ended.detail
    assert ended.steps_per_s == pytest.approx(0.5, rel=0.1)
    assert ended.boot_s == pytest.approx(120.0, abs=2.0)


def test_too_short_a_training_says_nothing_of_a_machine_s_speed(world: World) -> None:
    assert world.launch().steps_per_s is None
