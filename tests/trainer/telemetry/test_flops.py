"""Floating-point operations: as a count by hand has it; and what GPUs could do."""

import math

import pytest
import torch
from torch import Tensor, nn

from vastrun.contract.gpus import peak_of
from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.job.config import ModelConfig
from vastrun.trainer.models.latent_operator import LatentOperator
from vastrun.trainer.models.operator import Domain
from vastrun.trainer.stages.objective import UnrollLoss
from vastrun.trainer.telemetry.figures import training_flops

META = torch.device("meta")


def windows(batch: int, points: int = 32, unroll: int = 2) -> Windows:
    with META:
        return Windows(
            fields=torch.empty(batch, unroll + 1, 1, points),
            noise=torch.empty(batch, 1, points),
            level=torch.empty(batch),
            conditions=torch.empty(batch, 2),
        )


class Linear(nn.Module):
    """As an objective."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(32, 8))

    def forward(self, windows: Windows) -> Tensor:
        return (windows.noise @ self.weight).mean()[None]


class Spectral(Linear):
    def forward(self, windows: Windows) -> Tensor:
        return torch.fft.rfft(windows.noise @ self.weight).abs().mean()[None]


def made(kind: type[nn.Module]) -> nn.Module:
    with META:
        return kind()


def test_a_product_of_matrices_counts_forward_and_for_the_gradient_of_its_weights() -> None:
    assert training_flops(made(Linear), windows(4)) == 2 * (2 * 4 * 32 * 8)


def test_fourier_transforms_count_too() -> None:
    forward = 5 * 4 * 8 * math.log2(8) / 2
    assert (
        training_flops(made(Spectral), windows(4)) - training_flops(made(Linear), windows(4)) >= 2 * forward
    )


def test_the_operator_is_counted_without_being_computed_and_in_proportion_to_the_batch() -> None:
    with META:
        model = UnrollLoss(
            LatentOperator(ModelConfig(dim=32, depth=2, heads=2, patch=4), [Domain(grid=(32,), conditions=2)])
        )
    flops = training_flops(model, windows(8))
    assert flops == pytest.approx(2 * training_flops(model, windows(4)), rel=0.01)
    # 2 operations a parameter and token, thrice, in each frame that is predicted.
    blocks = sum(
        p.numel() for block in model.operator.blocks for p in (*block.mlp.parameters(),) if p.dim() > 1
    )
    assert flops > 6 * blocks * 8 * 8 * 2


@pytest.mark.parametrize(
    ("name", "half"),
    [
        ("NVIDIA H100 80GB HBM3", 989.4),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 NVL", 835),
        ("NVIDIA H200", 989.4),
        ("NVIDIA H200 NVL", 835.5),
        ("NVIDIA GH200 480GB", 989.4),
        ("NVIDIA GH200 144G HBM3e", 989.4),
        ("NVIDIA GB200", 2500),
        ("NVIDIA B200", 2250),
        ("NVIDIA B300 SXM6 AC", 2250),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 503.8),
        ("RTX PRO 6000 WS", 503.8),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", None),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", None),
        ("RTX PRO 6000 S", None),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA GeForce RTX 4090", 165.2),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 3090 Ti", 80),
        ("NVIDIA L40S", 362),
        ("NVIDIA L40", 181),
        ("NVIDIA A10G", None),
        ("Radeon RX 7900", None),
    ],
)
def test_a_gpu_is_known_by_its_whole_name(name: str, half: float | None) -> None:
    peak = peak_of(name)
    assert (peak and peak.half) == half


def test_the_peak_is_that_of_the_precision() -> None:
    peak = peak_of("NVIDIA H200")
    assert peak is not None
    rates = [peak.flops_per_s(precision) for precision in ("bf16", "fp16", "tf32", "fp32")]
    assert rates == pytest.approx([989.4e12, 989.4e12, 494.7e12, 66.9e12])
