"""Latest: one question for many threads."""

from __future__ import annotations

import threading

import pytest

from tests.fakes import FakeClock
from vastrun.launcher.providers.vast.cached_query import CachedQuery


class Oracle:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.fails = False

    def __call__(self) -> int:
        self.asked += 1
        if self.fails:
            raise ValueError("no answer")
        return self.asked


def test_an_answer_holds_until_it_is_too_old_or_forgotten() -> None:
    clock, oracle = FakeClock(), Oracle()
    latest = CachedQuery(oracle, clock.now, 5.0)
    assert [latest.get(), latest.get()] == [1, 1]
    clock.sleep(5.0)
    assert latest.get() == 2
    latest.invalidate()
    assert latest.get() == 3


def test_without_an_age_every_question_is_asked() -> None:
    oracle = Oracle()
    latest = CachedQuery(oracle, FakeClock().now, 0.0)
    assert [latest.get(), latest.get()] == [1, 2]


def test_a_question_that_failed_is_asked_again_and_the_old_answer_is_no_answer() -> None:
    clock, oracle = FakeClock(), Oracle()
    latest = CachedQuery(oracle, clock.now, 5.0)
    latest.get()
    clock.sleep(6.0)
    oracle.fails = True
    for _ in range(2):
        with pytest.raises(ValueError, match="no answer"):
            latest.get()
    assert oracle.asked == 3


def test_threads_that_ask_together_wait_for_one_answer() -> None:
    clock, oracle, told = FakeClock(), Oracle(), list[int]()
    latest = CachedQuery(oracle, clock.now, 5.0)
    threads = [threading.Thread(target=lambda: told.append(latest.get())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == [1] * 8
