"""Plans of chaos: what others met on the live service is met in every long run of chaos."""

import pytest

from benchmarks.chaos.plans import plan
from benchmarks.chaos.troubles import DEADLY, GUARDED, LASTING, RECORDED, SURVIVED
from tests.emulators.faults import FAULTS

RUNS = 60


@pytest.mark.parametrize("seed", range(5))
def test_every_recorded_fault_is_met_in_sixty_runs(seed: int) -> None:
    plans = [plan(seed, number) for number in range(RUNS)]
    assert {name for name in RECORDED if not any(one.has_fault(name) for one in plans)} == set()


def test_recorded_faults_are_known_and_have_a_verdict() -> None:
    assert set(RECORDED) <= FAULTS.keys()
    assert {*LASTING, *RECORDED} <= {*SURVIVED, *DEADLY}


def test_a_machine_that_cannot_end_itself_never_loses_its_launcher_for_good() -> None:
    plans = [plan(seed, number) for seed in range(5) for number in range(0, RUNS, 2)]
    assert all(one.troubles[0].name in GUARDED for one in plans if one.abandoned)


@pytest.mark.parametrize("seed", range(5))
def test_the_machine_of_a_tenth_of_the_runs_never_starts_and_loses_its_launcher_for_good(seed: int) -> None:
    stuck = [one for number in range(RUNS) if (one := plan(seed, number)).never_starts]
    assert len(stuck) == RUNS / 10
    assert all(one.abandoned for one in stuck)
