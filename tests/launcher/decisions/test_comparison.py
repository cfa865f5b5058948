"""In what two runs differ."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.jobs import train_job
from tests.runs import a_run
from vastrun.launcher.cli.report import differences_text
from vastrun.launcher.core import Cause, Cost, Phase, Run
from vastrun.launcher.core.job import JobSpec, NotifyUrl
from vastrun.launcher.core.runs import CodeFile, CodeRecord
from vastrun.launcher.decisions.comparison import (
    ComparedRun,
    Difference,
    chosen_values,
    differences,
    job_differences,
    job_values,
)

RUN = a_run(provider="vast", phase=Phase.ENDED, out_dir="/nowhere", host="m1", image="vastrun@sha256:aa")


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


def test_the_code_comes_first_file_by_file_then_the_packages() -> None:
    def one(sha256: str, torch: str) -> ComparedRun:
        files = {
            "train.py": CodeFile(mode="100644", sha256=sha256),
            "same.py": CodeFile(mode="100644", sha256="s"),
        }
        record = CodeRecord(digest=sha256, files=files)
        return replace(compared(), code=record, packages={"torch": torch, "numpy": "2.0"})

    told = differences(one("a", "2.11.0"), one("b", "2.13.0"))
    assert [(each.section, each.key) for each in told] == [("code", "train.py"), ("packages", "torch")]


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


def test_settings_are_told_one_by_one() -> None:
    metrics = {f"scores.{number}": 1.0 for number in range(40)}
    every = differences(compared(metrics=metrics), compared(metrics=dict.fromkeys(metrics, 2.0)))
    assert len(differences_text(RUN, RUN, every, None).splitlines()) == 41
