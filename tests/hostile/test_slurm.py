"""A cluster that lies: refused as no answer, which is never the answer that there is nothing."""

import pytest

from tests.hostile.lie import STEERING
from tests.hostile.slurm import HONEST, LEFT_OUT, REFUSED, SHOWN
from vastrun.launcher.core import Cause
from vastrun.launcher.core.errors import UncertainError, UnreachableError
from vastrun.launcher.gate import slurm
from vastrun.launcher.gate.text import printable
from vastrun.launcher.providers.slurm.batch import order_error, query_error


@pytest.mark.parametrize("row", HONEST)
def test_what_is_honest_is_read(row: str) -> None:
    read, printed = HONEST[row]
    assert read(printed)


@pytest.mark.parametrize("row", REFUSED)
def test_a_lie_is_no_answer(row: str) -> None:
    read, printed = REFUSED[row]
    with pytest.raises(UnreachableError) as caught:
        read(printed)
    assert caught.value.cause is Cause.PROVIDER
    assert str(caught.value) == printable(str(caught.value))
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("row", LEFT_OUT)
def test_what_is_none_of_ours_is_left_out(row: str) -> None:
    read, printed = LEFT_OUT[row]
    assert read(printed) == []


@pytest.mark.parametrize("row", SHOWN)
def test_what_is_shown_is_bounded_and_steers_nothing(row: str) -> None:
    read, printed = SHOWN[row]
    shown = repr(read(printed)[0])
    assert shown == printable(shown)
    assert len(shown) < 3000


def test_a_complaint_of_slurm_s_steers_nothing_and_never_says_that_a_job_is_gone() -> None:
    error = query_error(STEERING + "\n" + "x" * 100_000)
    assert isinstance(error, UnreachableError)
    assert str(error) == printable(str(error))
    assert len(str(error)) < 400


def test_an_order_without_a_clear_answer_may_have_made_a_job() -> None:
    assert isinstance(
        order_error("sbatch: error: Batch job submission failed: Socket timed out"), UncertainError
    )
    assert slurm.parse_job_id("7\n8") is None
    assert slurm.parse_job_id("7;lab\n") == 7
