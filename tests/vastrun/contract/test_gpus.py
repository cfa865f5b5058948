"""What each GPU can do at best: a second table, of the figures as the data sheets print them."""

import pytest

from vastrun.contract.gpus import PEAKS, GpuPeak, peak_of

SPARSE = 2
"""A sheet's rate with sparsity is twice the dense one."""

SHEETS: dict[str, tuple[float, float, float, tuple[int, ...]]] = {
    "B300": (36_000 / 8 / SPARSE, 600 / 8, 8.0, (269,)),
    "GB200": (360_000 / 72 / SPARSE, 5_760 / 72, 576 / 72, (185,)),
    "B200": (36_000 / 8 / SPARSE, 600 / 8, 7.7, (179,)),
    "GH200": (1_979 / SPARSE, 67, 4.0, (96, 143)),
    "H200 NVL": (1_671 / SPARSE, 60, 4.8, (140,)),
    "H200": (1_979 / SPARSE, 67, 4.8, (140,)),
    "H100 NVL": (1_671 / SPARSE, 60, 3.9, (94,)),
    "H100 PCIe": (1_513 / SPARSE, 51, 2.0, (80,)),
    "H100": (1_979 / SPARSE, 67, 3.35, (80,)),
    "A100": (624 / SPARSE, 19.5, 1.555, (40, 80)),
    "A800": (624 / SPARSE, 19.5, 1.555, (40, 80)),
    "A40": (299.4 / SPARSE, 37.4, 0.696, (45,)),
    "A30": (330 / SPARSE, 10.3, 0.933, (24,)),
    "A10": (250 / SPARSE, 31.2, 0.600, (22,)),
    "L40S": (362.05, 91.6, 0.864, (45,)),
    "L40": (362 / SPARSE, 90.5, 0.864, (45,)),
    "L4": (242 / SPARSE, 30.3, 0.300, (22,)),
    "RTX A6000": (309.7 / SPARSE, 38.7, 0.768, (48,)),
    "RTX A5000": (222.2 / SPARSE, 27.8, 0.768, (24,)),
    "RTX 6000 Ada": (1_457 / 2 / SPARSE, 91.1, 0.960, (48,)),
    "RTX PRO 6000 WS": (4_030 / 4 / SPARSE, 125, 1.792, (96,)),
    "RTX 5090": (419 / SPARSE, 104.8, 1.792, (32,)),
    "RTX 4090": (330.3 / SPARSE, 82.6, 1.008, (24,)),
    "RTX 4080": (194.9 / SPARSE, 48.7, 0.7168, (16,)),
    "RTX 3090 Ti": (160 / SPARSE, 40, 1.008, (24,)),
    "RTX 3090": (142 / SPARSE, 35.6, 0.936, (24,)),
}
"""By name: TFLOP/s of bf16, and of fp32; TB/s; the sizes in GB that a driver tells.

A system's rates are divided by its GPUs; of the RTX 6000 Ada and PRO 6000 the sheets have only FP8 and FP4.
"""


def test_every_gpu_is_in_both_tables() -> None:
    assert SHEETS.keys() == PEAKS.keys()


@pytest.mark.parametrize("name", SHEETS)
def test_a_gpu_can_do_what_its_sheet_says(name: str) -> None:
    half, single, memory_tb, sizes_gb = SHEETS[name]
    peak = peak_of(name)
    assert peak is not None
    assert peak.flops_per_s("bf16") == pytest.approx(1e12 * half, abs=0.6e12, rel=0)
    assert peak.flops_per_s("fp32") == pytest.approx(1e12 * single, abs=0.15e12, rel=0)
    assert peak.bytes_per_s == pytest.approx(1e12 * memory_tb, abs=0.5e9, rel=0)
    assert peak.sizes_gb == sizes_gb


@pytest.mark.parametrize(
    ("precision", "tflops"), [("bf16", 100.0), ("fp16", 100.0), ("tf32", 50.0), ("fp32", 30.0)]
)
def test_tf32_has_half_the_rate_of_bf16(precision: str, tflops: float) -> None:
    peak = GpuPeak(half=100.0, single=30.0, memory=1.0, sizes_gb=(1,))
    assert peak.flops_per_s(precision) == 1e12 * tflops


def test_tf32_is_never_slower_than_fp32() -> None:
    assert GpuPeak(half=50.0, single=30.0, memory=1.0, sizes_gb=(1,)).flops_per_s("tf32") == 30e12


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("nvidia a100-pcie-40gb", "A100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("H100 NVL", "H100 NVL"),
        ("RTX 3090 Ti", "RTX 3090 Ti"),
        ("RTX 3090", "RTX 3090"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 WS"),
        ("RTX 4090 D", None),
        ("RTX 4080 SUPER", None),
        ("RTX 4090 Laptop GPU", None),
        ("RTX PRO 6000 Max-Q", None),
        ("RTX 4080 Ti", None),
        ("A1000", None),
        ("", None),
    ],
)
def test_a_name_means_the_longest_entry_that_it_has_whole(name: str, known: str | None) -> None:
    assert peak_of(name) is (None if known is None else PEAKS[known])
