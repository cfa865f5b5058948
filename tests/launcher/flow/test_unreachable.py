"""A machine or a provider that does not answer, or will not do what it is asked."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakebox import Training
from tests.fakes import FakeProvider
from tests.launcher.faults import Fault, Plan
from tests.launcher.world import RUN_ID, World
from vastrun.launcher.core import Cause, Phase
from vastrun.launcher.core.errors import AuthError, UnreachableError, VastrunError
from vastrun.launcher.core.verdict import VERDICT_OF
from vastrun.launcher.ports import Abilities

GONE = "the machine no longer exists; the provider no longer lists it"


def test_a_machine_that_vanishes_while_training_is_lost(world: World) -> None:
    world.expect(Fault(verb="remote.run", nth=6, moment="before", trouble="vanish"))
    run = world.launch()
    assert (run.cause, run.detail) == (Cause.LOST, GONE)
    assert VERDICT_OF[run.cause] == "LOST"
    assert world.market.forgotten == {RUN_ID}


def test_a_machine_that_answers_again_was_not_answering_and_its_provider_was_asked(world: World) -> None:
    world.expect(Fault(verb="remote.run", nth=6, moment="before", trouble="unreachable", times=20))
    run = world.launch()
    told = [event.text for event in world.screen.events]
    (silent,) = [text for text in told if text.startswith("the machine does not answer")]
    assert silent.endswith("; its provider lists it as running")
    assert [text for text in told if text.startswith("the machine answers again, after ")]
    assert run.cause is None and not run.meter.silent and run.meter.answered_at


class Archive(FakeProvider):
    """Makes backups of the machines that it takes away, or does not answer who asks for them."""

    found: Sequence[str] | VastrunError = ("a backup",)

    @property
    def abilities(self) -> Abilities:
        return replace(super().abilities, backups=self.backups)

    def backups(self, instance_id: str) -> Sequence[str]:
        if isinstance(self.found, VastrunError):
            raise self.found
        return self.found


@pytest.mark.parametrize(
    ("found", "detail"),
    [
        (("a backup", "another"), f"{GONE}; a backup; another"),
        ((), GONE),
        (UnreachableError("no answer"), GONE),
        (AuthError("the key lacks the right"), GONE),
    ],
)
def test_a_lost_run_names_the_backups_that_its_provider_made(found: Any, detail: str, world: World) -> None:
    market = Archive(world.clock)
    market.found = found
    world.market, world.plan = market, Plan(market)
    world.expect(Fault(verb="remote.run", nth=6, moment="before", trouble="vanish"))
    assert world.launch().detail == detail


def test_a_run_that_died_without_an_exit_code_is_given_half_a_minute_to_write_one(tmp_path: Path) -> None:
    world = World(tmp_path, training=Training(seconds=1000.0, dies_after_s=5.0))

    run = world.launch()

    assert (run.cause, run.failed_in) == (Cause.HOST, Phase.TRAIN)
    assert run.detail == "the run on the machine died without an exit code"
    events = world.ledger.events(RUN_ID)
    shipped, collected = (
        next(event.at for event in events if event.phase is phase) for phase in (Phase.SHIP, Phase.COLLECT)
    )
    assert collected - shipped == pytest.approx(5 + 30, abs=3)
    assert world.rented() == 0


def test_a_machine_that_will_not_go_keeps_the_row_open_and_resume_tries_again(world: World) -> None:
    world.expect(Fault(verb="provider.destroy", nth=1, moment="before", trouble="error", times=99))

    run = world.launch()
    assert run.phase is Phase.DESTROY
    assert run.cause is None
    assert world.rented() == 1

    world.expect()
    run = world.resume()
    assert (run.phase, run.cause) == (Phase.ENDED, None)
    assert world.rented() == 0


@pytest.mark.parametrize(
    ("verb", "times"),
    [("provider.destroy", 8), ("remote.write", 99)],
    ids=["for minutes while the machine is ended", "once the outputs are home"],
)
def test_a_cut_line_is_waited_for_and_takes_no_success_away(verb: str, times: int, world: World) -> None:
    world.expect(Fault(verb=verb, nth=1, moment="before", trouble="unreachable", times=times))
    run = world.launch()
    assert (run.phase, run.cause) == (Phase.ENDED, None), run.detail
    assert world.rented() == 0


def test_outputs_of_a_box_that_stays_silent_are_waited_for_five_minutes(world: World) -> None:
    world.expect(
        Fault(verb="output_store.collect", nth=1, moment="before", trouble="unreachable", times=9999)
    )

    began = world.clock.now()

    run = world.launch()

    assert (run.phase, run.cause) == (Phase.ENDED, Cause.OUTPUTS_LOST), run.detail
    assert world.rented() == 0
    waited_s = world.clock.now() - began - world.market.training.seconds
    assert 300 <= waited_s <= 400


def test_the_first_cause_stays_when_the_clean_up_stumbles(world: World) -> None:
    world.expect(
        Fault(verb="remote.put", nth=1, moment="before", trouble="error"),
        Fault(verb="provider.destroy", nth=1, moment="before", trouble="bug"),
    )
    run = world.launch()
    assert run.cause is Cause.PROVIDER
    assert "HTTP 500" in run.detail
    assert world.rented() == 0
