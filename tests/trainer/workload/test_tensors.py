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
