"""The clock of the steps: on a CPU by the time that passes, on CUDA by events that nobody waits for."""

from __future__ import annotations

import time

import pytest
import torch

from vastrun.trainer.distributed.clock import StepClock


def step(clock: StepClock, *, data_s: float, alone_s: float, together_s: float) -> None:
    clock.begin()
    with clock.waiting_for_data():
        time.sleep(data_s)
    time.sleep(alone_s)
    clock.meet()
    time.sleep(together_s)
    clock.end()


def test_a_clock_knows_the_step_the_wait_for_data_and_the_work_alone() -> None:
    clock = StepClock(torch.device("cpu"))
    assert clock.look() is None
    for _ in range(3):
        step(clock, data_s=0.01, alone_s=0.02, together_s=0.01)
    step(clock, data_s=0.01, alone_s=0.1, together_s=0.01)
    times = clock.look()
    assert times is not None
    assert 0.04 <= times.step_p50_s <= times.step_p99_s
    assert times.step_p99_s >= 0.12
    assert 0 < times.data_wait < 1
    assert clock.alone_s() >= (3 * 0.03 + 0.11) / 4


def test_what_was_told_is_told_once_and_the_percentiles_remember() -> None:
    clock = StepClock(torch.device("cpu"))
    step(clock, data_s=0.02, alone_s=0.0, together_s=0.0)
    clock.look()
    clock.alone_s()
    time.sleep(0.01)
    times = clock.look()
    assert times is not None
    assert times.data_wait == 0
    assert times.step_p50_s >= 0.02
    assert clock.alone_s() == pytest.approx(0.0)


def test_the_work_alone_ends_where_a_rank_first_waits_for_others() -> None:
    clock = StepClock(torch.device("cpu"))
    clock.begin()
    clock.meet()
    time.sleep(0.02)
    clock.meet()
    clock.end()
    times = clock.look()
    assert times is not None
    assert times.step_p50_s - clock.alone_s() >= 0.02
