"""Every trouble with the machine below, at every call of a run on one of its slots: as the flow's own matrix.

No slot may stay, none may be made twice, and no verdict may lie.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.launcher import faults
from tests.launcher.pool.slotted import SlottedMarket
from tests.launcher.run_checks import drive_to_the_end
from tests.launcher.world import World
from vastrun.launcher.core import Phase, Run, bills
from vastrun.launcher.core.errors import IncompleteListError
from vastrun.launcher.decisions.history import SpeedHistory
from vastrun.launcher.flow.services import Services
from vastrun.launcher.pool.provider import PoolProvider

MACHINE_TROUBLES = ("error", "uncertain", "unreachable", "busy", "vanish", "killed")
VERBS: dict[str, tuple[str, ...]] = {
    "machine.machine": MACHINE_TROUBLES,
    "provider.connect": (*MACHINE_TROUBLES, "gone"),
    "remote.run": (*MACHINE_TROUBLES, "gone"),
    "remote.write": (*MACHINE_TROUBLES, "gone"),
    "remote.read": (*MACHINE_TROUBLES, "gone"),
    "remote.put": (*MACHINE_TROUBLES, "gone"),
}
ROWS = [
    (verb, moment, trouble) for verb, all_ in VERBS.items() for moment in faults.MOMENTS for trouble in all_
]
CALLS = 8


class SlottedWorld(World):
    """Runs on slots of one machine, which somebody else holds."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.machine = SlottedMarket(self.clock)
        self.silent: set[str] = set()
        """Providers whose machines do not answer."""
        self.plan.market = self.machine  # type: ignore[assignment]
        self.held = [self.machine.held(self.spec)]

    def services(self, who: str | None = None) -> Services:
        below: Any = faults.FaultyProvider(self.machine, "machine", self.plan)
        out_of_reach: Any = SlottedMarket(self.clock)
        out_of_reach.is_silent = True
        pool = PoolProvider(
            self._runs,
            lambda name: out_of_reach if name in self.silent else below,
            lambda _provider, _spec: SpeedHistory(),
            clock=self.clock,
        )
        return replace(super().services(who), provider=pool)

    def _runs(self) -> Sequence[Run]:
        return self.held

    def rented(self) -> int:
        return self.machine.slots.rented


def strikes(fault: faults.Fault, folder: Path) -> bool:
    """Whether a whole run makes that call; with the fault in it no slot stays and no verdict lies."""
    world = SlottedWorld(folder)
    world.expect(fault)

    run = drive_to_the_end(world)

    story = (fault, [f"{event.phase}: {event.text}" for event in world.screen.events])
    assert world.rented() == 0, story
    assert world.machine.slots.most_at_once <= 1, story
    assert run is not None
    assert run.phase is Phase.ENDED, story
    if run.cause is None:
        assert run.proofs, story
        assert all(proof.holds for proof in run.proofs), story
    if fault.trouble == "killed":
        assert run.cause is None, (run.cause, run.detail, story)
    cost = bills.cost_usd(run, world.clock.now())
    assert cost == pytest.approx(world.machine.slots.bill_usd, rel=0.05, abs=0.2), story
    return bool(world.plan.struck)


each_row = pytest.mark.parametrize(("verb", "moment", "trouble"), ROWS, ids=lambda value: value)


@each_row
def test_one_trouble_with_the_machine_at_the_first_call_leaves_no_slot_and_no_false_verdict(
    verb: str, moment: faults.Moment, trouble: str, tmp_path: Path
) -> None:
    faults.check_first_call(strikes, verb, moment, trouble, tmp_path)


@pytest.mark.slow
@each_row
def test_one_trouble_with_the_machine_at_a_later_call_leaves_no_slot_and_no_false_verdict(
    verb: str, moment: faults.Moment, trouble: str, tmp_path: Path
) -> None:
    faults.check_later_calls(strikes, verb, moment, trouble, tmp_path, CALLS)


def test_another_machine_that_is_silent_keeps_no_run_from_its_end(tmp_path: Path) -> None:
    world = SlottedWorld(tmp_path)
    silent = replace(world.held[0], id="held-owl-0b0b", instance_id="2", provider="silent")
    world.held.append(silent)
    world.silent.add("silent")
    with pytest.raises(IncompleteListError, match="held-owl-0b0b: it does not answer"):
        world.services().provider.instances()

    run = world.launch()

    assert run.phase is Phase.ENDED
    assert run.cause is None, run.detail
    assert world.rented() == 0


def test_a_slot_on_a_machine_that_is_silent_is_not_taken_for_gone(tmp_path: Path) -> None:
    world = SlottedWorld(tmp_path)
    world.expect(faults.Fault(verb="remote.run", nth=12, moment="before", trouble="unreachable", times=40))
    run = world.launch()
    assert run.cause is None, run.detail
    assert world.machine.slots.most_at_once == 1
