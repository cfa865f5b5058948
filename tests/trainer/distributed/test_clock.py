"""The clock of the steps: on a CPU by the time that passes, on CUDA by events that nobody waits for."""

import time

import torch

from vastrun.trainer.distributed.clock import StepClock


def step(clock: StepClock, *, data_s: float, work_s: float) -> None:
    clock.begin()
    with clock.waiting_for_data():
        time.sleep(data_s)
    time.sleep(work_s)
    clock.end()


def test_a_clock_knows_the_step_and_the_wait_for_data() -> None:
    clock = StepClock(torch.device("cpu"))
    assert clock.look() is None
    for _ in range(3):
        step(clock, data_s=0.01, work_s=0.03)
    step(clock, data_s=0.01, work_s=0.11)
    times = clock.look()
    assert times is not None
    assert 0.04 <= times.step_p50_s <= times.step_p99_s
    assert times.step_p99_s >= 0.12
    assert 0 < times.data_wait < 1


def test_what_was_told_is_told_once_and_the_percentiles_remember() -> None:
    clock = StepClock(torch.device("cpu"))
    step(clock, data_s=0.02, work_s=0.0)
    clock.look()
    time.sleep(0.01)
    times = clock.look()
    assert times is not None
    assert times.data_wait == 0
    assert times.step_p50_s >= 0.02
