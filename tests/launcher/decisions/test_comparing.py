"""In what two runs differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from launcher.core import Cause, Cost, Phase, Run
from launcher.core.job import JobSpec, NotifyUrl
from launcher.decisions.comparing import (
    ComparedRun,
    Difference,
    chosen_values,
    differences,
    job_differences,
    job_values,
)
from tests.jobs import train_job

RUN = Run(
    id="calm-heron-3f1a",
    job="demo",
    spec_json="{}",
    provider="vast",
    phase=Phase.ENDED,
    out_dir="/nowhere",
    created_at=0.0,
    phase_at=0.0,
    host="m1",
    image="vastrun@sha256:aa",
)


def compared(run: Run = RUN, metrics: Mapping[str, float] | None = None, **changes: Any) -> ComparedRun:
    spec = replace(train_job(), **changes)
    return ComparedRun(
        run=run,
        spec=spec,
        cost=Cost(gpu_usd=1.0),
        usd_per_hour=run.usd_per_hour,
        seconds=10.0,
        metrics=metrics or {},
    )


def found(one: ComparedRun, other: ComparedRun) -> dict[tuple[str, str], Difference]:
    return {(each.section, each.key): each for each in differences(one, other)}


def test_a_run_differs_from_itself_in_nothing() -> None:
    assert not differences(compared(), compared())


def test_each_part_is_compared() -> None:
    failed = replace(RUN, host="m2", image="vastrun@sha256:bb", cause=Cause.HOST)
    told = found(compared(metrics={"loss": 2.0, "lr": 1.0}), compared(failed, {"loss": 1.0}, ranks=4))
    assert {
        ("job", "ranks"),
        ("host", "host"),
        ("image", "image"),
        ("end", "cause"),
        ("end", "verdict"),
        ("metrics", "loss"),
        ("metrics", "lr"),
    } == {*told}
    assert told["metrics", "loss"].change == -0.5
    assert told["metrics", "lr"].other is None and told["metrics", "lr"].change is None
    assert told["host", "host"].change is None


def test_options_are_named_as_set_takes_them() -> None:
    spec = train_job()
    assert spec.train is not None
    other = replace(spec, train=replace(spec.train, optim=replace(spec.train.optim, lr=0.5)))
    assert [(each.key, each.other) for each in job_differences(spec, other)] == [("train.optim.lr", 0.5)]
    assert chosen_values(other)["train.optim.lr"] == 0.5
    assert set(chosen_values(JobSpec(name="x", command=("true",)))) == {"name", "command"}


def test_no_address_that_is_told_is_shown() -> None:
    spec = replace(train_job(), notify=(NotifyUrl(url="https://ntfy.sh/my-secret"),))
    assert "my-secret" not in repr(job_values(spec))
    assert "<secret>" in repr(job_values(spec))
