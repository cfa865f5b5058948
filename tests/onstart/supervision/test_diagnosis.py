"""Which rank failed first, and of what."""

import signal
from typing import Any

import pytest

from vastrun.contract.outcome import RankEnd
from vastrun.onstart.supervision import diagnosis
from vastrun.onstart.supervision.failure_causes import signal_of

NO_RUN: frozenset[int] = frozenset()


def ended(rank: int, exit_code: int | None, at: float = 10.0, **known: Any) -> diagnosis.TimedRankEnd:
    end = RankEnd(rank=rank, exit_code=exit_code, signal=signal_of(exit_code), **known)
    return diagnosis.TimedRankEnd(end=end, at=at)


def first_of(*ends: diagnosis.TimedRankEnd, killed: frozenset[int] = NO_RUN) -> int | None:
    first = diagnosis.first_failure(ends, killed)
    return first.end.rank if first else None


def test_nobody_failed_when_all_exited_0() -> None:
    assert first_of(ended(0, 0), ended(1, 0)) is None


def test_the_earliest_failure_is_the_first() -> None:
    assert first_of(ended(0, 1, at=11.0), ended(1, 1, at=10.9)) == 1


def test_a_rank_that_the_agent_ended_is_not_the_cause_even_if_it_left_first() -> None:
    assert first_of(ended(0, -signal.SIGTERM, at=10.0), ended(1, 1, at=10.1)) == 1


def test_a_rank_that_saved_on_sigterm_is_not_the_cause() -> None:
    assert first_of(ended(0, 143, at=10.0, reason="stopped"), ended(1, -signal.SIGSEGV, at=10.1)) == 1


def test_a_rank_that_the_supervisor_killed_is_not_the_cause() -> None:
    ends = ended(0, -signal.SIGKILL, at=10.0), ended(1, 1, at=10.1)
    assert first_of(*ends, killed=frozenset({0})) == 1
    assert first_of(*ends) == 0


def test_a_lost_connection_is_not_the_cause_when_a_peer_crashed() -> None:
    lost = ended(0, 1, at=10.0, reason="communication")
    assert first_of(lost, ended(1, -signal.SIGSEGV, at=10.2)) == 1


def test_a_lost_connection_is_the_cause_when_nothing_else_failed() -> None:
    assert first_of(ended(0, 1, at=10.2, reason="communication"), ended(1, -signal.SIGTERM, at=10.3)) == 0


def test_sigterm_from_outside_to_every_rank_blames_the_earliest() -> None:
    assert first_of(ended(0, -signal.SIGTERM, at=10.3), ended(1, -signal.SIGTERM, at=10.0)) == 1


@pytest.mark.parametrize(
    ("ends", "first", "marked"),
    [
        ((ended(0, -signal.SIGTERM), ended(1, 1), ended(2, 0)), 1, [True, False, False]),
        # One that another brought down before it had begun, and one whose end nobody saw.
        ((ended(0, None), ended(1, 1)), 1, [True, False]),
        ((ended(0, None), ended(1, 1)), None, [False, False]),
    ],
)
def test_those_that_others_brought_down_are_marked(
    ends: tuple[diagnosis.TimedRankEnd, ...], first: int | None, marked: list[bool]
) -> None:
    found = diagnosis.mark_ended_by_us(ends, None if first is None else ends[first], NO_RUN)
    assert [end.ended_by_us for end in found] == marked


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (ended(0, -signal.SIGSEGV), "signal"),
        (ended(0, 3), "error"),
        (ended(0, 76), "oom"),
        (ended(0, 1, reason="data", exception="DataError: NaN in advection.h5"), "data"),
        # What was only printed gives no reason.
        (ended(0, 1, exception="torch.OutOfMemoryError: CUDA out of memory."), "error"),
        (ended(0, 1, reason="finished"), "error"),
        (ended(0, 1, reason="no such reason"), "error"),
    ],
)
def test_a_failure_has_a_class(end: diagnosis.TimedRankEnd, reason: str) -> None:
    assert diagnosis.reason_of_end(end.end) == reason


def test_a_real_time_signal_has_a_name_too() -> None:
    assert signal_of(-40) == "signal 40"
