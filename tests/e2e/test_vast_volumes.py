"""A data volume on emulated Vast: what one run keeps there the next one finds, whatever goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.e2e.fast_launcher import FastLauncher, job
from tests.emulators.faults import FAULTS, VOLUME
from tests.emulators.volumes import RELEASE_S
from vastrun.launcher.core.job import DataVolume, JobSpec

KEEPS = """\
import os, pathlib
kept = pathlib.Path(os.environ["VASTRUN_DATA"], "kept")
print("kept data" if kept.exists() else "no data", flush=True)
kept.write_text("these")
print("all is well", flush=True)
"""
FOUND, NOTHING = "kept data", "no data"


@dataclass(frozen=True)
class Case:
    """A fault before the second of two runs, or before the first, and what becomes of the volume."""

    name: str
    finds: str = FOUND
    """What the second run has in its data folder."""
    created: int = 1
    told: str = ""
    """What its user is told."""
    first: bool = False
    """It strikes the first run."""
    endpoint: str | None = None

    def __str__(self) -> str:
        return "-".join(filter(None, [self.name, self.endpoint, "first" if self.first else ""]))


CASES = (
    Case("volumes_denied", NOTHING, told="lacks the permission"),
    Case("volumes_denied", NOTHING, first=True),
    Case("volume_unlisted", NOTHING, told="the provider does not list it now"),
    Case("volume_gone", NOTHING, told="the provider does not list it now"),
    Case("volume_busy", NOTHING, first=True, told="another machine uses it"),
    Case("volume_refused", NOTHING, told="the order with it was rejected"),
    Case("volume_refused", NOTHING, first=True),
    Case("no_answer_done", first=True, endpoint="create"),
    Case("bad_gateway_done", first=True, endpoint="create"),
    Case("server_error", first=True, endpoint="list_volumes"),
    Case("no_such_ask", NOTHING, told="the order with it was rejected"),
    Case("create_denied_done", told="volume shared is attached"),
    Case("create_denied_done", first=True, told="volume shared is attached"),
)


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[FastLauncher]:
    with FastLauncher(tmp_path, factor=20.0) as launcher:
        yield launcher


def with_volume() -> JobSpec:
    return replace(job(KEEPS), volume=DataVolume(name="shared", gb=20))


def both(launcher: FastLauncher, case: Case | None = None) -> str:
    """Two runs of the job; the log of the second."""
    for name in ("one", "two"):
        if case is not None and case.first == (name == "one"):
            launcher.strike(case.name, endpoint=case.endpoint)
        runs = launcher.launch(with_volume(), folder=name)
        story = "\n".join(map(repr, launcher.screen.events))
        assert runs[0].cause is None, story
        launcher.vast.advance(RELEASE_S + 1)
    return (Path(runs[0].out_dir) / "log.txt").read_text()


def check_money(launcher: FastLauncher) -> None:
    bill_usd = launcher.vast.volumes.total_usd
    now = launcher.vast.clock.now()
    ledger_usd = sum(volume.cost_usd(now) for volume in launcher.ledger.volumes.all())
    assert ledger_usd >= bill_usd * 0.998


@pytest.mark.slow
def test_the_second_run_finds_what_the_first_one_kept(launcher: FastLauncher) -> None:
    assert FOUND in both(launcher)
    assert launcher.vast.volumes.created == len(launcher.vast.volumes) == 1
    assert len(launcher.vast.instances) == 0
    check_money(launcher)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.slow
def test_volume_fault(launcher: FastLauncher, case: Case) -> None:
    log = both(launcher, case)
    story = "\n".join(map(repr, launcher.screen.events))
    assert case.name in launcher.vast.faults.struck, story
    assert case.finds in log, story
    assert case.told in story
    assert launcher.vast.volumes.created == case.created, story
    assert len(launcher.vast.instances) == 0
    check_money(launcher)


def test_every_fault_of_volumes_has_its_case() -> None:
    assert {name for name, (where, _) in FAULTS.items() if where == VOLUME} <= {case.name for case in CASES}
