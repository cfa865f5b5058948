"""A budget: what is left of an exchange's bytes, items, seconds and memory."""

from __future__ import annotations

import pytest

from tests.fakes import FakeClock
from vastrun.launcher.core.errors import BoxError
from vastrun.launcher.gate.budget import ExchangeBudget
from vastrun.launcher.gate.caps import Allowance

ALLOWANCE = Allowance(bytes=100, items=3, seconds=2, memory=10)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def budget(clock: FakeClock) -> ExchangeBudget:
    return ExchangeBudget(ALLOWANCE, now=clock.now)


@pytest.mark.parametrize(
    ("spent", "words"),
    [
        ({"size": 100}, "100 bytes"),
        ({"items": 3}, "3 files"),
        ({"memory": 10}, "10 bytes to be read at once"),
    ],
)
def test_all_of_it_may_be_spent_and_no_more(
    budget: ExchangeBudget, spent: dict[str, float], words: str
) -> None:
    budget.spend(**spent)
    with pytest.raises(BoxError, match=f"the machine sent more than {words}"):
        budget.spend(**dict.fromkeys(spent, 1))


def test_it_is_late_once_its_seconds_are_over(budget: ExchangeBudget, clock: FakeClock) -> None:
    clock.sleep(1.9)
    assert not budget.is_late
    clock.sleep(0.1)
    assert budget.is_late


def test_whoever_ends_the_exchange_is_asked_before_anything_is_spent(clock: FakeClock) -> None:
    def ends() -> None:
        raise InterruptedError

    budget = ExchangeBudget(ALLOWANCE, check=ends, now=clock.now)
    for spend in (budget.check, budget.spend, lambda: budget.spend(size=1000)):
        with pytest.raises(InterruptedError):
            spend()
