"""StopAgreement: a SIGTERM to any rank stops all of them after the same step, within about a second."""

import signal
from collections.abc import Iterator

import pytest

from tests.trainer.conftest import together
from vastrun.integrations import StopAgreement


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


class Steps:
    """A training whose steps take so many seconds each, by a clock of its own."""

    def __init__(self, step_s: float) -> None:
        self.now = 0.0
        self.step_s = step_s
        self.stop = StopAgreement(clock=lambda: self.now)

    def until_stop(self, *, asked_after: int, limit: int = 10_000) -> int:
        """Return the step after which it stops, when SIGTERM comes in the step after `asked_after`."""
        for step in range(1, limit):
            if step == asked_after + 1:
                signal.raise_signal(signal.SIGTERM)
            self.now += self.step_s
            if self.stop.should_stop():
                return step
        raise AssertionError("it did not stop")


def test_a_program_that_nobody_stops_goes_on() -> None:
    steps = Steps(0.01)
    with pytest.raises(AssertionError, match="did not stop"):
        steps.until_stop(asked_after=10**6)
    assert not steps.stop.stopped


def test_it_stops_after_the_first_step_when_it_was_asked_before_that() -> None:
    assert Steps(0.01).until_stop(asked_after=0) == 1


@pytest.mark.parametrize("step_s", [0.0, 0.001, 0.02, 0.4])
def test_it_stops_within_about_a_second_and_at_most_a_hundred_steps(step_s: float) -> None:
    for asked_after in (50, 333, 1001):
        stopped = Steps(step_s).until_stop(asked_after=asked_after)
        assert asked_after < stopped <= asked_after + 100
        assert (stopped - asked_after) * step_s <= 1.0


def test_slow_steps_are_asked_about_each_time() -> None:
    assert Steps(20.0).until_stop(asked_after=7) == 8


def test_steps_that_become_slow_cost_one_interval_at_most() -> None:
    steps = Steps(0.05)
    for _ in range(500):
        steps.now += steps.step_s
        assert not steps.stop.should_stop()
    steps.step_s = 5.0
    assert steps.until_stop(asked_after=100) == 101


def test_it_stays_stopped() -> None:
    steps = Steps(0.01)
    steps.until_stop(asked_after=3)
    assert steps.stop.stopped
    assert steps.stop.should_stop()


@pytest.mark.torch
def test_all_ranks_stop_after_the_same_step_though_one_alone_was_asked() -> None:
    first, second = together(stop_one_of_two, 2)
    assert first == second
    assert 40 < first <= 140


def stop_one_of_two(ranks: object, *_: object) -> int:
    """Return the step after which this rank stops. Rank 1 is asked in step 41; its steps seem slower."""
    import torch.distributed as dist

    now, rank = [0.0], dist.get_rank()
    stop = StopAgreement(clock=lambda: now[0])
    for step in range(1, 1000):
        if rank == 1 and step == 41:
            signal.raise_signal(signal.SIGTERM)
        now[0] += 0.001 if rank == 0 else 0.03
        if stop.should_stop():
            return step
    return 0
