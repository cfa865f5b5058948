"""Precision: which products a GPU may round."""

from collections.abc import Iterator

import pytest
import torch

from vastrun.trainer.models.precision import autocast, make_scaler, set_tf32

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = allowed()
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def allowed() -> tuple[bool, bool]:
    """For products of matrices, and for convolutions."""
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_what_is_in_fp32_is_computed_in_fp32_convolutions_too(precision: str) -> None:
    set_tf32("tf32", GPU)
    set_tf32(precision, GPU)
    assert allowed() == (False, False)


def test_a_job_that_asks_for_tf32_gets_it_for_all_products() -> None:
    set_tf32("tf32", GPU)
    assert allowed() == (True, True)


def test_nothing_is_set_on_a_cpu() -> None:
    before = allowed()
    set_tf32("tf32", CPU)
    assert allowed() == before


def test_tf32_needs_neither_autocast_nor_a_scaler() -> None:
    with autocast("tf32", CPU):
        assert not torch.is_autocast_enabled("cpu")
    assert not make_scaler("tf32", CPU).is_enabled()
