"""A speed-up is measured on 1, 2, 4 ... ranks, one training after the other, and kept for `plan`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.jobs import command_job, train_job
from vastrun.launcher.commands import speedup
from vastrun.launcher.commands.rehearse import Rehearsal
from vastrun.launcher.commands.speedup import (
    MeasurementError,
    SpeedupMeasurement,
    SpeedupStore,
    check_measurable,
)
from vastrun.launcher.core import Bundle
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.job import JobSpec, Resources
from vastrun.launcher.decisions.speedup import LOG_EVERY


class FakeRehearsal:
    """Trains without a box: a step takes a second for eight windows of a rank, and 0.1 s with others."""

    def __init__(self) -> None:
        self.now = 0.0
        self.trained: list[tuple[int, int]] = []
        self.most_windows = 1000
        self.exit_codes: dict[str, int] = {}
        self._spec = train_job()
        self._records: list[dict[str, float]] = []

    def pack(self, spec: JobSpec) -> Bundle:
        self._spec = spec
        return Bundle(path="", size=0, sha256="")

    def prepare(self, bundle: Bundle, *, fresh: bool) -> None:
        assert fresh
        self._records = []

    def metrics(self) -> list[dict[str, float]]:
        return self._records

    def run_step(
        self,
        step: str,
        secrets: bytes,
        show: Callable[[str], None],
        is_enough: Callable[[], bool] = lambda: False,
    ) -> int:
        if step != "train":
            return self.exit_codes.get(step, 0)
        assert self._spec.train is not None
        ranks, batch = self._spec.ranks_per_node, self._spec.train.global_batch
        self.trained.append((ranks, batch))
        if batch // ranks > self.most_windows:
            return 76
        step_s, number = batch / ranks / 8 + (0.1 if ranks > 1 else 0.0), 0
        while not is_enough():
            number += LOG_EVERY
            self.now += LOG_EVERY * step_s
            self._records.append({"step": number, "at": self.now, "data_wait": 0.0})
        return 143


def measurement(rehearsal: FakeRehearsal) -> SpeedupMeasurement:
    return SpeedupMeasurement(
        rehearsal=cast(Rehearsal, rehearsal),
        steps=("data", "train"),
        pack=rehearsal.pack,
        secrets=lambda _: b"",
        show=lambda _: None,
        report=lambda _: None,
        seconds=20.0,
        now=lambda: rehearsal.now,
    )


def job(gpus: int = 4, **train: Any) -> JobSpec:
    spec = train_job(resources=Resources(gpus=gpus))
    assert spec.train is not None
    return replace(spec, train=replace(spec.train, batch=16, **train))


def test_each_number_of_ranks_is_measured_and_one_rank_alone_with_its_share() -> None:
    rehearsal = FakeRehearsal()
    found = measurement(rehearsal).measure(job(), "L4")
    assert rehearsal.trained == [(1, 16), (2, 16), (1, 8), (4, 16), (1, 4)]
    assert [round(row.samples_per_s, 2) for row in found.rows] == [8.0, 14.55, 26.67]
    assert [row.limit for row in found.rows] == ["none", "none", "collectives"]
    assert found.rows[2].collectives == pytest.approx(0.1 / 0.6)
    assert rehearsal.now < 400, "each is stopped once it was measured"


def test_a_share_that_does_not_fit_one_rank_leaves_the_rest_measured() -> None:
    rehearsal = FakeRehearsal()
    rehearsal.most_windows = 16
    assert measurement(rehearsal).measure(job(), "L4").rows[-1].limit == "collectives"
    rehearsal.most_windows = 8
    with pytest.raises(MeasurementError, match="on 1 rank ended before its speed was known"):
        measurement(rehearsal).measure(job(), "L4")


def test_a_step_that_fails_is_named() -> None:
    rehearsal = FakeRehearsal()
    rehearsal.exit_codes = {"data": 65}
    with pytest.raises(MeasurementError, match="the step data failed with exit code 65"):
        measurement(rehearsal).measure(job(), "L4")


@pytest.mark.parametrize(
    ("spec", "says", "hint"),
    [
        (command_job(), "onboard trainer only", ""),
        (replace(job(), nodes=2), "the job has 2", "--set nodes=1"),
        (job(gpus=1), "the job has one", "--set resources.gpus=2"),
        (job(gpus=0), "the job has one", "--set ranks=2"),
        (job(gpus=3), "expected a multiple of the 3 ranks, got 16", "--set train.batch=15"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_what_to_do(spec: JobSpec, says: str, hint: str) -> None:
    with pytest.raises(UsageError, match=says) as refusal:
        check_measurable(spec)
    assert (refusal.value.hint or "") == hint


def test_speed_ups_are_kept_by_job_and_model_of_gpu(tmp_path: Path) -> None:
    store = SpeedupStore(tmp_path)
    assert store.load(job()) == {}
    for gpu in ("L4", "RTX 4090", ""):
        store.save(job(), measurement(FakeRehearsal()).measure(job(), gpu))
    assert sorted(store.load(job(gpus=8))) == ["", "L4", "RTX 4090"]
    assert store.load(job(unroll=1)) == {}
    assert store.load(job())["L4"].steps_per_s(2) == pytest.approx(1 / 1.1)
    assert store.load(job())["L4"].steps_per_s(8) is None


def test_a_broken_file_is_as_if_there_were_none_and_the_oldest_are_removed(tmp_path: Path) -> None:
    store, found = SpeedupStore(tmp_path), measurement(FakeRehearsal()).measure(job(), "L4")
    store.save(job(), found)
    (path,) = store.folder.iterdir()
    path.write_text('{"gpu": "L4", "rows": []}')
    assert store.load(job()) == {}
    os.utime(path, (1.0, 1.0))
    for number in range(speedup.MAX_STORED):
        store.save(job(unroll=2), replace(found, gpu=f"GPU {number}"))
    assert not path.exists()
    assert len(list(store.folder.iterdir())) == speedup.MAX_STORED
