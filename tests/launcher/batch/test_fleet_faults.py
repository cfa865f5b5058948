"""Every trouble with the market while a batch holds machines: none may stay, no cent may pass its budget."""

from pathlib import Path

import pytest

from tests.jobs import train_job
from tests.launcher.batch.test_fleet import check_the_bill, story
from tests.launcher.batch.virtual_time import Killed, VirtualTime
from tests.launcher.batch.world import NAME, BatchWorld
from tests.launcher.faults import MOMENTS, Fault, Moment, Plan

TROUBLES = ("error", "uncertain", "unreachable", "busy", "vanish", "killed")
VERBS = {
    "provider.search": TROUBLES,
    "provider.rent": TROUBLES,
    "provider.instances": TROUBLES,
    "provider.machine": TROUBLES,
    "provider.connect": TROUBLES,
    "provider.destroy": TROUBLES,
    "remote.run": ("unreachable", "gone", "vanish", "killed"),
    "remote.write": ("unreachable", "gone", "vanish", "killed"),
}
ROWS = [
    (verb, moment, trouble) for verb, troubles in VERBS.items() for moment in MOMENTS for trouble in troubles
]
CALLS = (1, 2, 4)
BUDGET_USD = 3.0


class DeadlyPlan(Plan):
    """With the trouble `killed` the whole launcher is killed, with all that it drives."""

    def __init__(self, market: object, fault: Fault, time: VirtualTime) -> None:
        super().__init__(market=market, faults=(fault,))  # type: ignore[arg-type]
        self._time = time

    def _strike(self, verb: str, nth: int, moment: Moment) -> None:
        fault = self._due(verb, nth, moment)
        if fault is not None and fault.trouble == "killed":
            self.struck.append(fault)
            self._time.kill_at = self._time.now()
            self._time.must_live()
        super()._strike(verb, nth, moment)


def drive_to_the_end(world: BatchWorld) -> None:
    """As a patient user would: resume whatever was interrupted."""
    for _ in range(8):
        try:
            world.drive()
        except Killed:
            world.time.kill_at = float("inf")
        else:
            if all(state.verdict is not None for state in world.states()):
                return
        world.ledger.batches.reopen(NAME)


@pytest.mark.sampled(20)
@pytest.mark.parametrize(("verb", "moment", "trouble"), ROWS)
def test_one_trouble_leaves_no_machine_and_gives_each_point_one_end(
    verb: str, moment: Moment, trouble: str, tmp_path: Path
) -> None:
    struck = 0
    for nth in CALLS:
        world = BatchWorld(tmp_path)
        world.market.is_large = True
        world.plan = DeadlyPlan(
            world.market, Fault(verb=verb, nth=nth, moment=moment, trouble=trouble), world.time
        )
        job = train_job(retry={"lost": 2, "host": 2})
        world.submit(4, usd=BUDGET_USD, parallel=2, reuse="auto", job=job)

        drive_to_the_end(world)

        assert all(state.verdict is not None for state in world.states()), (nth, story(world))
        assert world.market.bill_usd <= BUDGET_USD
        assert max(world.market.labels.values()) == 1, (nth, story(world))
        check_the_bill(world, above_usd=0.03)  # what is not known to be free is charged
        if trouble == "killed":
            assert world.verdicts() == {"SUCCEEDED": 4}, (nth, story(world))
        struck += len(world.plan.struck)
    assert struck, "no fault of this row ever struck: the row tests nothing"
