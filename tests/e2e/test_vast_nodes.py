"""A run with two nodes on an emulated Vast: each fault of its overlay network, and nothing is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from launcher.core import Cause
from tests.e2e.fast_launcher import PRINTS, FastLauncher, job
from tests.e2e.market import machines
from tests.emulators.faults import FAULTS, NETWORK
from tests.emulators.machines import Machine

CLUSTER = 7


def cluster(count: int) -> Sequence[Machine]:
    """Machines of one cluster, and two that belong to none and cost less."""
    alone, others = machines(count + 2)[:2], machines(count + 2)[2:]
    return [
        *(replace(one, gpu_usd=0.01) for one in alone),
        *(replace(one, cluster_id=CLUSTER) for one in others),
    ]


@dataclass(frozen=True)
class Case:
    """A fault, and how the job ends in spite of it or because of it."""

    name: str
    causes: tuple[Cause | None, ...] = (None,)
    """Of the job's first runs, in order; None is a success."""
    exit_code: int = 0
    rented: int = 2
    """How many machines were had, in all."""
    left: int = 0
    """How many overlays stay."""
    times: int = 1
    said: str = ""

    def __str__(self) -> str:
        return self.name if self.times == 1 else f"{self.name} x{self.times}"


CASES = (
    Case("overlays_off", (Cause.NO_OFFER,), 8, rented=0, said="Vast has none for this account"),
    Case("overlay_read_denied", (Cause.PROVIDER,), 5, rented=0, said="may not use overlay networks"),
    Case("overlay_denied", (Cause.PROVIDER,), 5, rented=0, said="may not use overlay networks"),
    Case("overlay_made_unsaid"),
    Case("join_refused", (Cause.PROVIDER,), 5, rented=0, said="may not join overlay"),
    Case("no_interface", (Cause.HOST, None), rented=4, said="no interface on 127.0.0.0/8"),
    Case("overlay_stays"),
    Case("overlay_stays", left=1, times=99, said="`vastrun reap` removes it"),
    Case("overlay_in_use", left=1, times=99, said="`vastrun reap` removes it"),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_fault_of_an_overlay(case: Case, tmp_path: Path) -> None:
    with FastLauncher(tmp_path, market=cluster(5)) as launcher:
        launcher.strike(case.name, times=case.times)
        runs = launcher.launch(replace(job(PRINTS), nodes=2))[::-1]
        story = "\n".join(map(repr, launcher.screen.events))

        assert case.name in launcher.vast.faults.struck, story
        assert len(launcher.vast.instances) == 0, story
        assert len(launcher.vast.overlays) == case.left, story
        assert len(launcher.vast.billing.meters) == case.rented, story
    causes = [run.cause for run in runs]
    assert causes[: len(case.causes)] == list(case.causes), story
    assert runs[-1].exit_code() == case.exit_code
    assert case.said in story


def test_every_fault_of_an_overlay_has_its_case() -> None:
    assert {case.name for case in CASES} == {name for name, (where, _) in FAULTS.items() if where == NETWORK}
