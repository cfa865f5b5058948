"""A job of several stages is estimated as one: its mean step, and the memory of its largest stage."""

import pytest

from vastrun.trainer.job.workload import PeakBytes, Workload
from vastrun.trainer.workload.estimator import combine_stages

pytestmark = pytest.mark.torch


def workload(*, flops: float, operations: int, parameters: int) -> Workload:
    peak = PeakBytes(parameters=parameters, gradients=1, optimiser=2, activations=3, other=4)
    return Workload(
        strategy="ddp", micro_batch=8, flops=flops, traffic_bytes=10 * flops, operations=operations, peak=peak
    )


def test_the_steps_of_a_stage_say_how_much_it_counts() -> None:
    operator = workload(flops=100.0, operations=10, parameters=50)
    distill = workload(flops=400.0, operations=50, parameters=150)

    both = combine_stages([operator, distill], [300, 100])

    assert (both.flops, both.traffic_bytes, both.operations) == (175.0, 1750.0, 20)
    assert both.peak == distill.peak


def test_a_single_stage_is_what_it_is() -> None:
    operator = workload(flops=0.1, operations=10, parameters=50)

    assert combine_stages([operator], [3]) is operator
