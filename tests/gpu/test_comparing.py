"""Curves of losses are compared by their largest difference; what is no number is infinitely far off."""

import math

import pytest

from tests.gpu.comparing import LIMITS, beside, fell, furthest
from vastrun.trainer.models.precision import DTYPES


def test_the_largest_difference_counts_as_a_share_of_the_reference() -> None:
    assert furthest([1.0, 2.02, 0.5], [1.0, 2.0, 0.5]) == pytest.approx(0.01)
    assert furthest([1.0, 0.0], [1.0, 0.0]) == 0


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_is_infinitely_far_off(loss: float) -> None:
    assert furthest([1.0, loss], [1.0, 1.0]) == math.inf
    assert not beside({"ddp": [1.0, loss]}, [1.0, 1.0], "bf16")[0].holds


def test_a_curve_that_is_shorter_is_no_match() -> None:
    with pytest.raises(ValueError, match="1 losses beside 2"):
        furthest([1.0], [1.0, 1.0])
    with pytest.raises(ValueError, match="0 losses beside 0"):
        furthest([], [])


def test_each_curve_has_the_limit_of_its_precision() -> None:
    near, far = beside({"ddp": [1.000005], "fsdp2": [1.00002]}, [1.0], "fp32")
    assert (near.holds, far.holds) == (True, False)
    assert str(far) == "fsdp2 2e-05 off"
    assert not beside({"single": [1.0 + 1e-15]}, [1.0], "bitwise")[0].holds


def test_every_precision_has_a_limit() -> None:
    assert {*DTYPES, "bitwise"} == {*LIMITS}


def test_a_training_that_learns_nothing_is_told_from_one_that_learns() -> None:
    assert fell([1.0, 0.5])
    assert not fell([1.0, 0.95])
    assert not fell([1.0, math.nan, 0.5])
