"""Whether a training has begun, and what it does until then, as a look at its box shows it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.jobs import command_job, train_job
from tests.launcher.ledger.test_ledgers import RUN
from tests.launcher.world import World
from vastrun.launcher.config import program_of
from vastrun.launcher.core import BoxStatus, Phase, Progress
from vastrun.launcher.core.boxes import RankStatus
from vastrun.launcher.core.job import Hold, JobSpec, Success
from vastrun.launcher.flow import progress
from vastrun.launcher.flow.pace import Pace, stages_left
from vastrun.launcher.flow.run_state import DISPLAY_INTERVAL_S, RunState
from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.job.stage_config import StageConfig

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
    beginning = progress.TrainingStartDetector()
    for second, look in enumerate(looks):
        beginning.observe(look, spec, second * progress.MIN_ALIVE_S / 5)
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
def test_progress_is_that_of_the_rank_furthest_behind(look: BoxStatus, spec: JobSpec, text: str) -> None:
    assert progress.activity_of(look, spec) == text


def seen(*looks: tuple[float, float]) -> Pace:
    """Steps by moment."""
    pace = Pace()
    for at, step in looks:
        pace.observe(step, at)
    return pace


def test_what_is_left_follows_the_pace_that_was_seen() -> None:
    pace = seen(*((float(t), 1 + t // 2) for t in range(21)))
    assert pace.left_s(100, 20.0) == pytest.approx((100 - 11) * 2)
    assert pace.left_s(100, 21.0) == pytest.approx((100 - 11) * 2 - 1)


@pytest.mark.parametrize(
    "looks",
    [
        [],
        [(0.0, 0)],
        [(0.0, 0), (60.0, 3)],
        [(0.0, 1), (2.0, 3)],
        [(50.0, 1), (54.9, 3)],
        [(0.0, 1), (60.0, 100)],
    ],
    ids=["nothing", "no step", "one step", "too short", "too short, later", "all done"],
)
def test_it_is_not_known_too_early_nor_when_all_is_done(looks: list[tuple[float, float]]) -> None:
    assert seen(*looks).left_s(100, 60.0) is None


def test_only_the_last_minutes_count() -> None:
    slow = [(float(t), 1 + t // 10) for t in range(0, 1000, 10)]
    fast = [(1000.0 + t, 100 + t) for t in range(400)]
    assert seen(*slow, *fast).left_s(1000, 1399.0) == pytest.approx(1000 - 499)


def test_after_a_restart_the_pace_is_taken_anew() -> None:
    pace = seen(*((float(t), t) for t in range(1, 300)), (300.0, 0), (330.0, 250))
    assert pace.left_s(1000, 331.0) is None
    pace.observe(255, 340.0)
    assert pace.left_s(1000, 340.0) == pytest.approx((1000 - 255) * 2)


STAGES = replace(
    TRAINER,
    train=TrainConfig(
        steps=300,
        stages=("operator", "refine", "distill"),
        stage_options={"refine": StageConfig(steps=150), "distill": StageConfig(steps=60)},
    ),
)
"""A step of `refine` takes four thirds of the time of one of `operator`, a step of `distill` seven thirds."""
SECONDS = {"operator": 0.75, "refine": 1.0, "distill": 1.75}
PAUSE_S = 40.0


def looks_at_stages() -> Iterator[tuple[float, int, float]]:
    """The moment of each step of the stages, the step, and the seconds that are left then."""
    assert STAGES.train is not None
    spans = STAGES.train.stage_spans
    end = sum(SECONDS[span.name] * span.steps for span in spans) + PAUSE_S * (len(spans) - 1)
    now = 0.0
    for span in spans:
        now += PAUSE_S if span.number else 0.0
        for step in range(span.first_step + 1, span.end_step + 1):
            now += SECONDS[span.name]
            yield now, step, end - now


def test_what_is_left_covers_all_stages_and_does_not_jump_where_a_slower_one_begins() -> None:
    pace, paces = Pace(), []
    for now, step, left_s in looks_at_stages():
        pace.observe(program_of(STAGES).work_done(step), now, stages_left(STAGES, step))
        found = pace.left_s(510, now, stages_left(STAGES, step))
        if step > 20 and left_s > 0:
            assert found is not None
            # Until the first change nothing is known of pauses.
            unknown_s = 2 * PAUSE_S if step <= 300 else 0.0
            assert found == pytest.approx(left_s - unknown_s, abs=0.1)
            paces.append(pace.steps_per_s)
    assert paces[-1] == pytest.approx(paces[20], rel=1e-6)
    assert pace.pause_s == pytest.approx(PAUSE_S)


def test_the_work_of_a_single_stage_is_its_steps() -> None:
    assert [program_of(TRAINER).work_done(step) for step in (0, 7)] == [0, 7]
    assert program_of(SILENT).work_done(7) == 7
    assert [program_of(STAGES).work_done(step) for step in (0, 510)] == [0, 510]


def test_where_nothing_moves_the_next_step_is_always_still_to_come() -> None:
    pace = seen((0.0, 1), (10.0, 2), (20.0, 3))
    assert pace.left_s(5, 25.0) == pytest.approx(15.0)
    assert pace.left_s(5, 9000.0) == pytest.approx(10.0)


def test_what_was_seen_counts_from_the_first_step_to_the_last() -> None:
    pace = seen((100.0, 0), (110.0, 5), (140.0, 20), (170.0, 20))
    assert (pace.seen_s, pace.seen_steps) == (30.0, 15)
    assert (seen().seen_s, seen().seen_steps, seen((5.0, 0)).seen_steps) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(("seconds", "known"), [(19.9, False), (20.0, True), (40.0, True)])
def test_a_pace_is_known_once_steps_were_seen_for_twenty_seconds(seconds: float, known: bool) -> None:
    pace = seen((100.0, 3), (100.0 + seconds, 43))
    expected = pytest.approx(40 / seconds) if known else None
    assert (pace.steps_per_s, pace.best_steps_per_s) == (expected, expected)


def test_steps_before_the_first_that_was_seen_are_no_pace() -> None:
    assert seen((0.0, 0), (60.0, 0)).steps_per_s is None
    assert seen((0.0, 0), (60.0, 1), (120.0, 31)).steps_per_s == pytest.approx(0.5)


def test_the_best_pace_is_the_faster_of_all_and_of_the_last_minutes() -> None:
    slow = [(10.0 * n, 1 + n) for n in range(60)]
    faster = [(600.0 + 10 * n, 61 + 5 * n) for n in range(40)]
    sped_up, slowed_down = (
        seen(*slow, *faster),
        seen((0.0, 1), (100.0, 501), *((100.0 + 10 * n, 501 + n) for n in range(60))),
    )
    assert sped_up.best_steps_per_s == pytest.approx(0.5)
    assert sped_up.steps_per_s == pytest.approx((61 + 5 * 39 - 1) / 990)
    assert slowed_down.best_steps_per_s == slowed_down.steps_per_s == pytest.approx(559 / 690)


def test_of_the_last_minutes_too_little_is_no_best_pace() -> None:
    fast_at_last = [(0.02 * n, 1 + n) for n in range(1000)] + [
        (20.0 + 0.001 * n, 1001 + n) for n in range(1000)
    ]
    pace = seen(*fast_at_last)
    assert pace.best_steps_per_s == pace.steps_per_s == pytest.approx(1999 / 20.999)


def test_the_last_minutes_are_three() -> None:
    assert seen((0.0, 1), (220.0, 21), (400.0, 381)).best_steps_per_s == pytest.approx(380 / 400)
    assert seen((0.0, 1), (219.0, 21), (400.0, 381)).best_steps_per_s == pytest.approx(360 / 181)


def test_a_restart_at_the_same_step_goes_on_and_one_at_a_lower_begins_anew() -> None:
    same = seen((0.0, 1), (30.0, 31), (60.0, 31))
    assert (same.began_at, same.seen_steps) == (0.0, 30)
    lower = seen((0.0, 1), (30.0, 31), (60.0, 30))
    assert (lower.began_at, lower.seen_steps, lower.steps_per_s) == (60.0, 0, None)


@pytest.mark.parametrize(("seconds", "left"), [(4.9, None), (5.0, 45.0)])
def test_what_is_left_is_known_after_five_seconds(seconds: float, left: float | None) -> None:
    pace = seen((0.0, 1), (seconds, 2))
    assert pace.left_s(11, seconds) == left


@pytest.mark.parametrize(
    ("activities", "text"),
    [
        (("checkpoint", "eval"), "evaluating"),
        (("checkpoint", "forward"), "saving a checkpoint"),
        (("done", "checkpoint"), "saving a checkpoint"),
        (("done", "done"), "finishing"),
        (("forward", "backward"), ""),
        (("", "data"), "starting the program"),
        (("compile", "start"), "preparing the ranks"),
        (("compile", "eval"), "compiling the model"),
    ],
)
def test_of_several_activities_the_first_of_the_table_is_told(activities: tuple[str, ...], text: str) -> None:
    assert progress.activity_of(box_status(*activities, step=3), TRAINER) == text


def test_a_machine_that_is_held_says_so_and_has_started_with_its_step() -> None:
    held = replace(SILENT, hold=Hold(slots=2))
    before, begun = box_status(onstart_step="40-data"), box_status()
    assert [progress.activity_of(look, held) for look in (before, begun)] == ["40-data", "held"]
    start = progress.TrainingStartDetector()
    seen_so = []
    for look in (before, begun, before):
        start.observe(look, held, 0.0)
        seen_so.append(start.has_started)
    assert seen_so == [False, True, True]


@pytest.mark.parametrize(
    ("look", "spec", "step", "steps", "stage"),
    [
        (box_status("", ""), SILENT, None, None, ""),
        (box_status("", "data"), SILENT, 0, None, ""),
        (box_status("", "", step=3), SILENT, 3, None, ""),
        (replace(box_status("", "", step=3), steps=9), SILENT, 3, 9, ""),
        (replace(box_status("", "", step=3), steps=9), BEATING, 3, 100, ""),
        (replace(box_status("forward", step=3), steps=9), TRAINER, 3, 10, ""),
        (box_status("forward", step=301), STAGES, 301, 510, "refine, stage 2 of 3"),
    ],
)
def test_the_last_step_is_the_job_s_and_the_box_s_only_where_the_job_has_none(
    look: BoxStatus, spec: JobSpec, step: int | None, steps: int | None, stage: str
) -> None:
    told = progress.progress_of(replace(look, loss=0.5), spec, Pace(), 0.0)
    assert (told.step, told.steps, told.loss, told.left_s) == (step, steps, 0.5, None)
    assert told.stage == stage
    assert told.activity == progress.activity_of(look, spec)


def test_what_is_left_is_told_of_a_job_with_a_last_step_only() -> None:
    pace = seen((0.0, 1), (10.0, 6))
    for spec, left_s in ((BEATING, 94 * 2.0), (SILENT, None), (TRAINER, 4 * 2.0)):
        assert progress.progress_of(box_status("forward", step=6), spec, pace, 10.0).left_s == left_s


LINES = ("1.5 30-image a\n", "2.5 40-data b\n", "3.5 50-train c\n", "free text\n")


@pytest.mark.parametrize(
    ("text", "step", "before"),
    [
        ("".join(LINES), "50-train", 2),
        ("".join(LINES), "40-data", 1),
        ("".join(LINES), "30-image", 0),
        ("".join(LINES), "60-end", 3),
        (LINES[3] + LINES[0], "50-train", 2),
        (LINES[1] + LINES[2] + LINES[0], "40-data", 3),
        ("", "50-train", 0),
    ],
)
def test_a_log_is_split_after_the_last_line_of_the_steps_before(text: str, step: str, before: int) -> None:
    lines = text.splitlines(keepends=True)
    assert progress.split_at(text, step) == ("".join(lines[:before]), "".join(lines[before:]))


@pytest.mark.parametrize(
    ("phase", "later_s", "due"),
    [
        (Phase.TRAIN, 0.0, False),
        (Phase.TRAIN, DISPLAY_INTERVAL_S / 2 - 0.01, False),
        (Phase.TRAIN, DISPLAY_INTERVAL_S / 2, True),
        (Phase.TRAIN, -1.0, True),
        (Phase.COLLECT, 0.0, True),
    ],
)
def test_the_same_progress_is_shown_again(tmp_path: Path, phase: Phase, later_s: float, due: bool) -> None:
    world = World(tmp_path)
    state = RunState(replace(RUN, phase=Phase.TRAIN), SILENT, world.services())
    state.show()
    world.clock.sleep(later_s)
    state.run = replace(state.run, phase=phase)
    state.show()
    assert len(world.screen.shown) == 1 + due
    state.show(Progress())
    assert len(world.screen.shown) == 2 + due
