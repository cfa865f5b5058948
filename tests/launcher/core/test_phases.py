"""The tables are whole, and every road through them ends."""

from typing import get_args

import pytest

from vastrun.contract.outcome import REASONS, Reason
from vastrun.launcher.core import Cause, Phase, Verdict
from vastrun.launcher.core.phases import NEXT, Result
from vastrun.launcher.core.verdict import EXIT_CODE_OF, EXIT_TEARDOWN_NOT_CONFIRMED, VERDICT_OF

RENTED = {Phase.RENT, Phase.BOOT, Phase.SHIP, Phase.TRAIN, Phase.COLLECT}


def test_every_phase_but_the_last_has_a_next_for_every_result() -> None:
    assert set(NEXT) == set(Phase) - {Phase.ENDED}
    assert all(set(row) == set(Result) for row in NEXT.values())


def test_no_road_leads_from_a_rented_machine_to_the_end_without_a_confirmed_destroy() -> None:
    for phase in RENTED:
        assert Phase.ENDED not in NEXT[phase].values()
    ways_out = [result for result, phase in NEXT[Phase.DESTROY].items() if phase is Phase.ENDED]
    assert ways_out == [Result.OK]


@pytest.mark.parametrize("phase", list(NEXT))
def test_every_road_ends_when_nothing_more_goes_wrong(phase: Phase) -> None:
    for result in Result:
        at, steps = NEXT[phase][result], 0
        while at is not Phase.ENDED:
            at, steps = NEXT[at][Result.OK], steps + 1
            assert steps < len(Phase)


def test_every_cause_has_a_verdict_and_every_verdict_an_exit_code_of_its_own_kind() -> None:
    assert set(VERDICT_OF) == {None, *Cause}
    assert set(EXIT_CODE_OF) == set(Verdict)
    assert EXIT_TEARDOWN_NOT_CONFIRMED not in EXIT_CODE_OF.values()


def test_every_reason_a_box_can_give_has_a_cause() -> None:
    assert set(REASONS) == set(get_args(Reason))
    assert {meaning.cause for meaning in REASONS.values()} <= {None, *Cause}
