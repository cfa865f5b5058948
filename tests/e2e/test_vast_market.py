"""A market that lags, repeats itself and changes its mind in any phase: one machine, and its whole bill."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.fast_launcher import WORKS, FastLauncher, job
from tests.e2e.test_vast_faults import ANSWERS, HANDOVERS, NEVER_LESS
from vastrun.launcher.core import Cause, Phase
from vastrun.launcher.core.bills import WATCHED_S, cost_usd

FACTOR = 10.0
PHASES = (Phase.PLAN, Phase.RENT, Phase.BOOT, Phase.TRAIN, Phase.COLLECT)
"""The fault strikes from when a line of that phase is shown: at the step that follows, or later in it."""


@dataclass(frozen=True, kw_only=True)
class Attack:
    """What the market does from then on."""

    seconds: float | None = None
    times: int = 1
    endpoint: str | None = None
    unseen_s: float = 0.0
    """For how long its price may be counted too high: until the launcher could know."""
    may_be_left: bool = False
    """A machine to which this happens before it is used is given back, and the next one is taken."""
    hides_traffic: bool = False
    """The last bytes of a machine that ended meanwhile were not seen."""


ATTACKS: Mapping[str, Attack] = {
    "hidden_row": Attack(seconds=30.0),
    "absent_row": Attack(hides_traffic=True),
    "frozen_list": Attack(seconds=30.0),
    "count_off": Attack(seconds=30.0),
    "empty_list": Attack(times=3),
    "null_row": Attack(times=3),
    "word_row": Attack(times=3),
    "odd_columns": Attack(times=999),
    "listed_loading": Attack(times=999),
    "rows_in_object": Attack(times=999),
    "no_answer_done": Attack(),
    "relabelled": Attack(),
    "price_rises": Attack(unseen_s=WATCHED_S, may_be_left=True),
    "price_falls": Attack(unseen_s=WATCHED_S),
}
CREATES = {"create_twice": Attack(seconds=8.0), "create_late": Attack(seconds=20.0)}
"""These strike while a machine is rented, and nowhere else."""
SHARE = 1 if "FUZZ" in os.environ else 2
"""One of so many phases is tried with each; `make fuzz` tries all of them."""
ROWS = [
    *(
        (name, phase)
        for row, name in enumerate(ATTACKS)
        for column, phase in enumerate(PHASES)
        if (row + column) % SHARE == 0
    ),
    *((name, Phase.PLAN) for name in CREATES),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "phase"), ROWS)
def test_one_machine_and_its_whole_bill(name: str, phase: Phase, tmp_path: Path) -> None:
    attack = (ATTACKS | CREATES)[name]
    with FastLauncher(tmp_path, factor=FACTOR) as launcher:
        details = {"seconds": attack.seconds, "times": attack.times, "endpoint": attack.endpoint}
        launcher.strike(name, cue=phase, **details)
        runs = launcher.launch(job(WORKS))
        story = "\n".join(map(repr, launcher.screen.events))
        meters = list(launcher.vast.billing.meters.values())
        left = len(launcher.vast.instances)

    causes = [run.cause for run in runs]
    assert causes == [None] or (attack.may_be_left and causes == [None, Cause.HOST]), story
    assert left == 0, story
    named = [run.instance_id for run in runs] + [one.instance_id for run in runs for one in run.rentals]
    assert sorted(named, key=str) == sorted(str(meter.instance_id) for meter in meters), story
    assert name == "create_twice" or len(meters) == len(runs), story
    bill_usd, ledger_usd = sum(meter.total_usd for meter in meters), sum(cost_usd(run, 0.0) for run in runs)
    late_s = (ANSWERS * launcher.lateness.answer_s + HANDOVERS * launcher.lateness.worst_s) * FACTOR
    usd_per_s = max(meter.rates.gpu_usd_per_hour for meter in meters) / 3600
    most_usd = bill_usd * 1.01 + (attack.unseen_s + late_s) * usd_per_s
    unseen_usd = meters[-1].usd("bwd") + meters[-1].usd("bwu") if attack.hides_traffic else 0.0
    assert bill_usd * NEVER_LESS - unseen_usd <= ledger_usd <= most_usd, story
