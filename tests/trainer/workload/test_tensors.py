"""Operations are counted, and queries of fake tensors are not."""

import pytest

pytestmark = pytest.mark.torch


def test_the_device_of_a_fake_tensor_is_neither_an_operation_nor_traffic() -> None:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from vastrun.trainer.workload.tensors import TensorCounter

    with FakeTensorMode(allow_non_fake_inputs=True), TensorCounter() as tensors:
        x = torch.empty(8, 4)
        made = tensors.operations, tensors.traffic_bytes
        assert x.device == torch.device("cpu")
        assert (tensors.operations, tensors.traffic_bytes) == made == (1, 8 * 4 * 4)
        x + x
        assert (tensors.operations, tensors.traffic_bytes) == (2, 3 * 8 * 4 * 4)


def test_each_phase_has_a_peak_of_its_own_and_one_that_comes_again_the_higher_of_its_peaks() -> None:
    import torch

    from vastrun.trainer.workload.tensors import TensorCounter

    with TensorCounter() as tensors:
        torch.empty(1000)
        tensors.begin_phase("one")
        small = torch.empty(10)
        tensors.begin_phase("two")
        torch.empty(100)
        tensors.begin_phase("one")
        torch.empty(20)
    assert {name: peak.total for name, peak in tensors.peaks().items()} == {"one": 120, "two": 440}
    assert small.nbytes == 40
