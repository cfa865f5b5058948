"""A machine that trains far below what its kind has shown, on an emulated Vast with real boxes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.fast_launcher import FastLauncher, job
from tests.e2e.terminal import JOBS
from tests.offers import rtx_4090
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Cause, Phase, Run
from vastrun.launcher.core.bills import cost_usd
from vastrun.launcher.core.job import Code, JobSpec, Resources, Success

STEPS = 100_000
"""More than any machine here does."""


def crawling() -> JobSpec:
    """A program that takes for ever, unless it continues from a checkpoint."""
    return replace(
        job(""),
        resources=Resources(gpus=1, disk_gb=8.0),
        code=Code(path=str(JOBS / "scripts")),
        command=("python", "script.py", "crawls", str(STEPS)),
        success=Success(log="all is well", steps=STEPS),
        retry={"slow": 1},
    )


def trained_before(launcher: FastLauncher, spec: JobSpec) -> None:
    """Three runs of that program went a thousand times as fast on other hosts."""
    offer = rtx_4090(usd_per_hour=0.4)
    for number in range(3):
        launcher.ledger.add(
            Run(
                id=f"former-{number}",
                job="former",
                spec_json=dump_job(spec),
                provider="vast",
                phase=Phase.ENDED,
                out_dir="/o",
                created_at=float(number),
                phase_at=0.0,
                offer=offer,
                host=str(number),
                steps_per_s=1000.0,
            )
        )


@pytest.mark.slow
def test_a_slow_host_is_exchanged_and_the_run_continues_from_its_newest_checkpoint(tmp_path: Path) -> None:
    with FastLauncher(tmp_path, factor=20.0) as launcher:
        spec = crawling()
        trained_before(launcher, spec)

        second, first, *_ = launcher.launch(spec)

        story = "\n".join(map(repr, launcher.screen.events))
        assert len(launcher.vast.instances) == 0, story
        meters = list(launcher.vast.billing.meters.values())
    assert (first.cause, second.cause, second.parent) == (Cause.SLOW, None, first.id), story
    assert first.host != second.host
    assert first.detail.startswith(
        "trains at 0.00 of the speed of earlier runs on RTX 4090 x1 (1e+03 steps/s, 3 runs)"
    )
    continued = launcher.screen.logs.partition("continues after step-")[2][:6]
    # The checkpoint that came home may be a little older than the step that was seen, or a step younger.
    assert abs(first.step - int(continued)) <= first.step / 2, story
    assert len(meters) == 2
    bill_usd = sum(meter.total_usd for meter in meters)
    assert bill_usd * 0.998 <= cost_usd(first, 0.0) + cost_usd(second, 0.0) <= bill_usd * 1.2
