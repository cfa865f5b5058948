"""The table of a batch's points says what the whole ledger says, whatever happened to its points."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.launcher.batch.world import NAME, BatchWorld
from tests.runs import a_run
from vastrun.launcher.batch import schedule
from vastrun.launcher.batch.points import PointTable
from vastrun.launcher.config import dump_job, read_job
from vastrun.launcher.core import Cause, Driver, Phase, Run
from vastrun.launcher.core.batch import BatchPoint
from vastrun.launcher.core.labels import POOL

ME = "desk:1:0"
POINTS = 12


class Points:
    """A batch's ledger in which things happen to its points, and the table that is told of each."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = BatchWorld(folder)
        self.ledger = self.world.ledger
        self.world.submit(POINTS, usd=100.0)
        spec_json, now = self._points[0].spec_json, self.world.time.now()
        self.holder = self._add(
            "machine", spec_json=spec_json, phase=Phase.TRAIN, rented_at=now, usd_per_hour=7.2
        )
        self.table = PointTable(self.ledger, NAME)
        self.reload()

    def happen(self) -> None:
        """Something happens to a point."""
        self.world.time.sleep(self.chance.uniform(1.0, 30.0))
        state = self.chance.choice(self.states)
        if state.is_waiting:
            self._start(state)
        elif state.is_open and state.last is not None:
            self._change(state.last)
        else:
            self.ledger.batches.again(NAME, [state.point.id])
            self.reload()
        self.table.refresh(self.table.of(state.point.id).point)

    @property
    def states(self) -> Sequence[schedule.PointState]:
        return schedule.states_of(self._points, self.ledger.runs(batch=NAME, members=True))

    def reload(self) -> None:
        self.table.reload_if_changed(self.ledger.batches.get(NAME))

    @property
    def _points(self) -> Sequence[BatchPoint]:
        return self.ledger.batches.points(NAME)

    def _start(self, state: schedule.PointState) -> None:
        spec = read_job(state.point.spec_json)
        provider = self.chance.choice(["fake", POOL])
        if provider == POOL:
            spec = replace(spec, slot_on=self.holder.id)
        run_id = f"run-{state.point.id}-{len(state.runs)}"
        self._add(run_id, point=state.point.id, provider=provider, spec_json=dump_job(spec))

    def _add(self, run_id: str, **fields: Any) -> Run:
        now = self.world.time.now()
        made: dict[str, Any] = {"point": "", "provider": "fake", "phase": Phase.PLAN, **fields}
        run = a_run(id=run_id, out_dir="/out", created_at=now, batch=NAME, reserved_usd=1.0, **made)
        self.ledger.add(run)
        return run

    def _change(self, run: Run) -> None:
        now = self.world.time.now()
        self.ledger.hold(run.id, Driver(who=ME, until=now + 600.0))
        if run.rented_at is None and self.chance.random() < 0.7:
            changed = replace(run, phase=Phase.TRAIN, rented_at=now, usd_per_hour=3.6)
        else:
            cause = self.chance.choice(
                [None, None, Cause.NO_OFFER, Cause.SIGNAL, Cause.PRUNED, Cause.STOPPED]
            )
            released_at = None if run.rented_at is None else now
            changed = replace(run, phase=Phase.ENDED, cause=cause, released_at=released_at, ended_at=now)
        self.ledger.save(changed, who=ME)
        self.ledger.release(run.id, ME)


@pytest.fixture(params=range(5))
def points(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Points]:
    yield Points(tmp_path, request.param)


def test_the_table_agrees_with_the_whole_ledger_after_each_change(points: Points) -> None:
    kinds = set()
    for _ in range(80):
        points.happen()
        points.table.refresh_open()
        states, now = points.states, points.world.time.now()
        runs = points.ledger.runs(batch=NAME, members=True)
        whole = schedule.progress_of_batch(states, 7.0, now, schedule.holding_runs(runs))
        assert asdict(points.table.progress(7.0, now)) == pytest.approx(asdict(whole))
        waiting = sorted((one for one in states if one.is_waiting), key=lambda one: one.lacks_offer)
        assert points.table.waiting() == waiting
        assert points.table.failure_causes() == schedule.failure_causes(
            states, points.ledger.batches.get(NAME).opened_at
        )
        assert list(points.table.states) == states
        assert points.table.first_run == min(
            (run for one in states for run in one.runs), key=lambda run: run.created_at, default=None
        )
        kinds |= {str(one.verdict) for one in states}
    assert {"SUCCEEDED", "FAILED", "None"} <= kinds


def test_the_text_of_a_job_is_in_memory_once_however_often_it_is_read(points: Points) -> None:
    for _ in range(40):
        points.happen()
        points.table.refresh_open()
    read_again = {point.id: point for point in points.ledger.batches.points(NAME)}
    texts = [
        (state.point.spec_json, other)
        for state in points.table.states
        for other in (read_again[state.point.id].spec_json, *(run.spec_json for run in state.runs))
    ]
    equal = [(of_point, other) for of_point, other in texts if of_point == other]
    assert len(equal) > len(read_again)
    assert all(of_point is other for of_point, other in equal)


def test_a_point_that_ended_is_not_looked_at_again(points: Points) -> None:
    for _ in range(80):
        points.happen()
    ended = [one for one in points.states if one.verdict is not None]
    assert ended
    assert not {one.point.id for one in ended} & {one.point.id for one in points.table.changing}
