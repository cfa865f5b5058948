"""A machine that trains far below what its kind has shown is named, and changed where that pays off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakebox import Training
from tests.jobs import command_job, train_job
from tests.launcher.faults import (
    DISK_TROUBLES,
    MOMENTS,
    PROVIDER_TROUBLES,
    REMOTE_TROUBLES,
    Fault,
    Killed,
    Moment,
)
from tests.launcher.run_checks import check_nothing_leaked_and_nothing_lied, drive_to_the_end
from tests.launcher.slow_world import FAST, LIMITS, SLOW, STEPS, earlier_runs, long_job, slow_world
from tests.launcher.terminal import Terminal
from tests.launcher.world import RUN_ID, World
from tests.slow import slow
from vastrun.contract.outcome import Check, Outcome
from vastrun.launcher.core import Cause, Run
from vastrun.launcher.core.job import Limits, Success
from vastrun.launcher.core.verdict import VERDICT_OF, Verdict
from vastrun.launcher.decisions.history import avoided

NAMED = "trains at 0.10 of the speed of earlier runs on RTX 4090 x2 (10 steps/s, 3 runs)"


def named(world: World) -> list[str]:
    return [event.text for event in world.ledger.events(RUN_ID) if event.text.startswith("trains at ")]


@pytest.mark.slow
def test_a_slow_machine_is_named_once_and_trains_on_without_a_retry(tmp_path: Path) -> None:
    slow = slow_world(tmp_path, long_job())

    run = slow.launch()

    assert run.cause is None, run.detail
    assert named(slow) == [NAMED]


def test_with_a_retry_the_run_saves_and_ends_and_its_host_is_avoided(tmp_path: Path) -> None:
    slow = slow_world(tmp_path, long_job(retry={"slow": 1}))

    run = slow.launch()

    assert (run.cause, VERDICT_OF[run.cause], run.exit_code()) == (Cause.SLOW, "FAILED", 5)
    assert run.detail.startswith(NAMED)
    assert 180 <= run.step <= 220, "as soon as enough was seen"
    assert any(path.startswith("run/checkpoints/step-") for path in slow.output_store.home)
    assert slow.rented() == 0
    assert avoided(slow.ledger.runs(), "fake", slow.clock.now()) == {run.host}
    told = [event.text for event in slow.ledger.events(RUN_ID)]
    assert any(text.startswith("continuing on another machine: ") for text in told)


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
def test_a_machine_is_not_called_slow_without_cause(
    former: list[Run], training: Training, tmp_path: Path
) -> None:
    fine = slow_world(tmp_path, long_job(retry={"slow": 1}), training=training, former=former)

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


def test_a_run_that_is_soon_done_stays_where_it_is(tmp_path: Path) -> None:
    short = Training(seconds=400.0, steps=400, checkpoint_every=10)
    spec = train_job(steps=400, limits=LIMITS, retry={"slow": 1})
    slow = slow_world(tmp_path, spec, training=short)

    assert slow.launch().cause is None
    assert named(slow) == [NAMED]


def test_a_run_whose_money_does_not_pay_for_another_machine_stays_where_it_is(tmp_path: Path) -> None:
    spec = long_job(retry={"slow": 1})
    poor = replace(spec, limits=Limits(hours=5.0, usd=0.7))
    slow = slow_world(tmp_path, poor, former=earlier_runs(spec))

    assert slow.launch().cause is Cause.MONEY_LIMIT
    assert named(slow) == [NAMED]


@pytest.mark.slow
def test_a_launcher_that_resumes_the_run_names_its_machine_no_second_time(tmp_path: Path) -> None:
    slow = slow_world(tmp_path, long_job())
    slow.expect(Fault(verb="output_store.download_log", nth=1200, moment="after", trouble="killed"))
    with pytest.raises(Killed):
        slow.launch()
    assert named(slow) == [NAMED]

    assert slow.resume().cause is None
    assert named(slow) == [NAMED]


def terminal(folder: Path, *trainings: Training) -> Terminal:
    made = Terminal(folder, *trainings)
    made.job.write_text(
        "name: demo\nresources: {gpus: 2}\nlimits: {hours: 5, usd: 30}\ntrain: {steps: 3000, batch: 8}\n"
    )
    for run in earlier_runs(long_job()):
        made.ledger.add(run)
    return made


def test_the_run_goes_on_on_another_host(tmp_path: Path) -> None:
    desk = terminal(tmp_path, SLOW, FAST)

    end = desk.launch("--set", "retry.slow=1")

    assert end.exit_code == 0, end.output
    second, first, *_ = desk.ledger.runs()
    assert (first.cause, second.cause, second.parent) == (Cause.SLOW, None, first.id)
    assert first.host != second.host
    assert desk.machines() == 0
    assert "ended with slow" in end.stderr


def own_program(training: Training, *, stopped_at_step: int = 200) -> Training:
    """A user's own program at that pace, which saves on SIGTERM and exits 0."""

    def stopped(outcome: Outcome) -> Outcome:
        steps = Check(name="steps", holds=False, text=f"every rank reached step {stopped_at_step} of {STEPS}")
        ranks = tuple(replace(rank, exit_code=0, reason=None) for rank in outcome.ranks)
        times = {"stop_sent_at": outcome.ended_at - 2, "stop_sent_step": stopped_at_step}
        return replace(outcome, kind="command", ranks=ranks, checks=(steps,), **times)  # type: ignore[arg-type]

    def finished(outcome: Outcome) -> Outcome:
        steps = Check(name="steps", holds=True, text=f"every rank reached step {STEPS} of {STEPS}")
        return replace(outcome, kind="command", checks=(steps,), checkpoint=None)

    return replace(training, kind="command", outcome=finished, stopped=stopped)


def test_a_program_that_exits_0_when_it_leaves_a_slow_machine_is_tried_again_on_another_host(
    tmp_path: Path,
) -> None:
    spec = command_job(success=Success(steps=STEPS), limits=LIMITS)
    desk = Terminal(tmp_path, own_program(SLOW), own_program(FAST))
    desk.job.write_text(
        "name: demo\nresources: {gpus: 2}\nlimits: {hours: 5, usd: 30}\nretry: {slow: 1}\n"
        "command: python train.py\nsuccess: {steps: 3000}\n"
    )
    for run in earlier_runs(spec):
        desk.ledger.add(run)

    end = desk.launch()

    assert end.exit_code == 0, end.output
    second, first, *_ = desk.ledger.runs()
    assert (first.verdict, first.cause) == (Verdict.FAILED, Cause.SLOW)
    assert "at step 200 of 3000" in first.detail or any("at step 200" in p.text for p in first.proofs)
    assert (second.verdict, second.parent) == (Verdict.SUCCEEDED, first.id)
    assert first.host != second.host
    assert desk.market.rentals == 2
    assert desk.machines() == 0


@pytest.mark.slow
def test_it_changes_no_more_often_than_the_job_says(tmp_path: Path) -> None:
    desk = terminal(tmp_path, SLOW)

    end = desk.launch("--set", "retry.slow=1")

    assert end.exit_code == 0, end.output
    second, first, *_ = desk.ledger.runs()
    assert (first.cause, second.cause) == (Cause.SLOW, None)
    told = [event.text for event in desk.ledger.events(second.id)]
    assert any(text.startswith("trains at 0.10 ") for text in told), "it is named all the same"
    assert len({first.host, second.host}) == 2


CHANGE_ROWS = [
    (verb, moment, trouble)
    for verb, troubles in {
        "remote.run": REMOTE_TROUBLES,
        "remote.read": REMOTE_TROUBLES,
        "output_store.download_log": DISK_TROUBLES,
        "output_store.collect": DISK_TROUBLES,
        "provider.instances": PROVIDER_TROUBLES,
        "provider.destroy": PROVIDER_TROUBLES,
        "ledger.save": ("no space", "killed"),
        "ledger.add_event": ("no space", "killed"),
    }.items()
    for moment in MOMENTS
    for trouble in troubles
]
"""What may go wrong while a run leaves a slow machine: the last calls of its launcher."""

STILL_SLOW = ("killed", "unreachable", "busy")

QUICK_CHANGE_ROWS = [
    row
    for row in CHANGE_ROWS
    if row[2] in STILL_SLOW and row[1] == ("after" if row[2] == "killed" else "before")
]


def a_run_on_a_slow_machine(folder: Path) -> World:
    return slow_world(folder, long_job(retry={"slow": 1}))


@pytest.fixture(scope="module")
def calls_of_a_change(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, int]:
    """How often each verb is called until such a run has ended, when nothing goes wrong."""
    world = a_run_on_a_slow_machine(tmp_path_factory.mktemp("calls"))
    assert world.launch().cause is Cause.SLOW
    return world.plan.calls


@pytest.mark.parametrize(
    ("verb", "moment", "trouble"),
    [*QUICK_CHANGE_ROWS, *slow(*(row for row in CHANGE_ROWS if row not in QUICK_CHANGE_ROWS))],
    ids=lambda value: value.replace(" ", "_"),
)
def test_a_fault_while_a_slow_machine_is_left_leaves_nothing_rented_and_no_false_verdict(
    verb: str, moment: Moment, trouble: str, calls_of_a_change: Mapping[str, int], tmp_path: Path
) -> None:
    world = a_run_on_a_slow_machine(tmp_path)
    nth = max(1, calls_of_a_change[verb] - 2)
    world.expect(Fault(verb=verb, nth=nth, moment=moment, trouble=trouble))

    run = drive_to_the_end(world)

    assert world.plan.struck
    check_nothing_leaked_and_nothing_lied(world, run)
    assert run is not None
    if trouble in STILL_SLOW:
        assert run.cause is Cause.SLOW, run.detail
