"""What a batch's driver does about early stop: real folders, a real ledger, and a look now and then."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes import FakeClock
from tests.runs import a_run
from vastrun.launcher.batch import observer
from vastrun.launcher.core import Phase, Run, UserRequest
from vastrun.launcher.core.batch import EarlyStop
from vastrun.launcher.ledger.sqlite import SqliteLedger

RULE = EarlyStop(rule="asha", min_steps=200, factor=3)


class Batch:
    """Points whose runs tell of their losses."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, FakeClock()
        self.ledger = SqliteLedger(Path(":memory:"), now=self.clock.now, alive=lambda _: True)
        self.pruner = observer.Pruner(RULE, "min", self.ledger)
        self.points: dict[str, list[Run]] = {}

    def begin(self, point: str, *, attempt: int = 1) -> None:
        run_id = f"{point}-{attempt}"
        run = a_run(
            id=run_id,
            provider="fake",
            phase=Phase.TRAIN,
            out_dir=str(self.folder / run_id),
            created_at=self.clock.now(),
            steps=1000,
        )
        self.ledger.add(run)
        Path(run.out_dir).mkdir()
        self.points.setdefault(point, []).append(run)

    def tell(self, point: str, loss: float, *steps: int) -> None:
        with (Path(self.points[point][-1].out_dir) / "metrics.jsonl").open("a") as file:
            file.writelines(json.dumps({"step": step, "loss": loss}) + "\n" for step in steps)
        self.change(point, step=steps[-1])

    def change(self, point: str, **changes: object) -> None:
        self.points[point][-1] = replace(self.points[point][-1], **changes)  # type: ignore[arg-type]

    def look(self) -> list[str]:
        self.clock.sleep(observer.MAX_CHECK_INTERVAL_S)
        return [pruning.run for pruning in self.pruner.look(self.points.values(), self.clock.now())]

    def requests(self) -> dict[str, UserRequest]:
        return {point: self.ledger.user_request(runs[-1].id) for point, runs in self.points.items()}


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    made = Batch(tmp_path)
    for point, loss in (("a", 0.1), ("b", 0.2), ("c", 0.3)):
        made.begin(point)
        made.tell(point, loss, 100, 200)
    made.points["not begun"] = []
    return made


def test_runs_that_fell_behind_are_asked_to_end_once_with_their_reason(batch: Batch) -> None:
    assert batch.look() == ["b-1", "c-1"]
    assert batch.look() == []

    assert batch.ledger.user_request("a-1") is UserRequest.NONE
    assert batch.ledger.user_request("b-1") is UserRequest.PRUNE
    (event,) = batch.ledger.events("b-1")
    assert event.text == (
        "pruned by its batch: at step 200 its loss 0.2 is not among the best third "
        "(best 1 of 3; the bar is 0.1)"
    )


def test_between_two_looks_nothing_is_read(batch: Batch) -> None:
    assert batch.pruner.look([], batch.clock.now()) == []
    batch.clock.sleep(observer.MIN_CHECK_INTERVAL_S / 2)
    assert batch.pruner.look(batch.points.values(), batch.clock.now()) == []
    assert batch.look() == ["b-1", "c-1"]


@pytest.mark.parametrize(
    ("trained_s", "between_s"),
    [(0.5, observer.MIN_CHECK_INTERVAL_S), (20.0, 5.0), (30.0, 7.5), (4000.0, observer.MAX_CHECK_INTERVAL_S)],
)
def test_looks_come_as_often_as_the_fastest_run_does_a_quarter_of_the_first_rung(
    trained_s: float, between_s: float, batch: Batch
) -> None:
    runs = [points[-1] for points in batch.points.values() if points]
    slow = replace(runs[0], step=1, phase_at=0.0)
    assert observer.poll_interval_s(RULE, [*runs, slow], runs[0].phase_at + trained_s) == between_s


def test_without_a_pace_looks_are_rare(batch: Batch) -> None:
    runs = [replace(points[-1], step=0) for points in batch.points.values() if points]
    assert observer.poll_interval_s(RULE, runs, batch.clock.now() + 1.0) == observer.MAX_CHECK_INTERVAL_S


@pytest.mark.parametrize(
    "changes", [{"phase": Phase.COLLECT}, {"phase": Phase.ENDED}, {"phase": Phase.BOOT}, {"step": 1000}]
)
def test_a_run_without_steps_is_left_alone_and_still_counts(changes: dict[str, object], batch: Batch) -> None:
    batch.change("a", **changes)
    batch.change("c", **changes)
    assert batch.look() == ["b-1"]


def test_one_that_its_user_stops_is_not_pruned(batch: Batch) -> None:
    batch.ledger.ask("b-1", UserRequest.STOP)
    assert batch.look() == ["c-1"]
    assert batch.ledger.events("b-1") == []


def test_the_attempts_of_a_point_are_one_training(batch: Batch) -> None:
    """Its first machine was lost after step 200; the second one goes on from the checkpoint of step 150."""
    for point in ("a", "c"):
        batch.change(point, phase=Phase.ENDED)
    batch.change("b", phase=Phase.ENDED)
    batch.begin("b", attempt=2)
    batch.tell("b", 0.05, 160)
    assert batch.look() == []

    batch.tell("b", 0.05, 210)
    assert batch.look() == []

    batch.begin("d")
    batch.tell("d", 0.2, 200)
    assert batch.look() == ["d-1"]


def test_what_ended_is_remembered_though_its_folder_is_gone(batch: Batch) -> None:
    for point in ("a", "b"):
        batch.change(point, phase=Phase.ENDED)
    batch.change("c", phase=Phase.BOOT)
    assert batch.look() == []
    for point in ("a", "b"):
        (Path(batch.points[point][0].out_dir) / "metrics.jsonl").unlink()
    batch.change("c", phase=Phase.TRAIN)
    assert batch.look() == ["c-1"]


def test_another_launcher_that_takes_over_decides_the_same(batch: Batch) -> None:
    batch.look()
    batch.pruner = observer.Pruner(RULE, "min", batch.ledger)
    assert batch.look() == []
    assert [len(batch.ledger.events(run)) for run in ("a-1", "b-1", "c-1")] == [0, 1, 1]
