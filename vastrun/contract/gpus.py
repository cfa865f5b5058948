"""GPUs: peak rates and memory sizes by model. No torch: the launcher estimates with it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GpuPeak:
    """Peak rates of a GPU: dense matrices in TFLOP/s, memory in GB/s; and its memory size in GB."""

    half: float
    """TFLOP/s of bf16 and fp16 with sums in fp32."""
    single: float
    """TFLOP/s of fp32 outside of the tensor cores."""
    memory: float
    """GB/s; of the smaller model where a name has two."""
    sizes_gb: tuple[int, ...]
    """Memory sizes in GB, the smallest model first: as the driver reports them, with error correction on
    where that is the default."""

    def flops_per_s(self, precision: str) -> float:
        """Return the peak for a precision of the job."""
        # TF32 has half the rate of bf16 on every GPU that has it.
        rates = {"fp32": self.single, "tf32": max(self.single, self.half / 2)}
        return 1e12 * rates.get(precision, self.half)

    @property
    def bytes_per_s(self) -> float:
        """Return the memory bandwidth in bytes per second."""
        return 1e9 * self.memory


PEAKS = {
    "B300": GpuPeak(half=2250, single=75, memory=8000, sizes_gb=(269,)),
    "GB200": GpuPeak(half=2500, single=80, memory=8000, sizes_gb=(185,)),
    "B200": GpuPeak(half=2250, single=75, memory=7700, sizes_gb=(179,)),
    "GH200": GpuPeak(half=989.4, single=66.9, memory=4000, sizes_gb=(96, 143)),
    "H200 NVL": GpuPeak(half=835.5, single=60, memory=4800, sizes_gb=(140,)),
    "H200": GpuPeak(half=989.4, single=66.9, memory=4800, sizes_gb=(140,)),
    "H100 NVL": GpuPeak(half=835, single=60, memory=3900, sizes_gb=(94,)),
    "H100 PCIe": GpuPeak(half=756, single=51, memory=2000, sizes_gb=(80,)),
    "H100": GpuPeak(half=989.4, single=66.9, memory=3350, sizes_gb=(80,)),
    "A100": GpuPeak(half=312, single=19.5, memory=1555, sizes_gb=(40, 80)),
    "A800": GpuPeak(half=312, single=19.5, memory=1555, sizes_gb=(40, 80)),
    "A40": GpuPeak(half=149.7, single=37.4, memory=696, sizes_gb=(45,)),
    "A30": GpuPeak(half=165, single=10.3, memory=933, sizes_gb=(24,)),
    "A10": GpuPeak(half=125, single=31.2, memory=600, sizes_gb=(22,)),
    "L40S": GpuPeak(half=362, single=91.6, memory=864, sizes_gb=(45,)),
    "L40": GpuPeak(half=181, single=90.5, memory=864, sizes_gb=(45,)),
    "L4": GpuPeak(half=121, single=30.3, memory=300, sizes_gb=(22,)),
    "RTX A6000": GpuPeak(half=154.8, single=38.7, memory=768, sizes_gb=(48,)),
    "RTX A5000": GpuPeak(half=111.1, single=27.8, memory=768, sizes_gb=(24,)),
    "RTX 6000 Ada": GpuPeak(half=364.2, single=91.1, memory=960, sizes_gb=(48,)),
    "RTX PRO 6000 WS": GpuPeak(half=503.8, single=125, memory=1792, sizes_gb=(96,)),
    "RTX 5090": GpuPeak(half=209.5, single=104.8, memory=1792, sizes_gb=(32,)),
    "RTX 4090": GpuPeak(half=165.2, single=82.6, memory=1008, sizes_gb=(24,)),
    "RTX 4080": GpuPeak(half=97.5, single=48.7, memory=717, sizes_gb=(16,)),
    "RTX 3090 Ti": GpuPeak(half=80, single=40, memory=1008, sizes_gb=(24,)),
    "RTX 3090": GpuPeak(half=71, single=35.6, memory=936, sizes_gb=(24,)),
}
"""Peaks by a part of the name; the longest match counts. Rates without sparsity, from NVIDIA's data sheets;
for GeForce and RTX from the white papers of their architectures (GA102, AD102, GB202).

Where a sheet gives only figures with sparsity, half of them: H200 NVL, GH200, HGX B200 and B300 (an eighth of
the system), GB200 NVL72 (a 72nd). The RTX PRO 6000 Server Edition is left out: its sheet has no dense rate.
"""

_MARKET_NAMES = {"RTX PRO 6000 BLACKWELL WORKSTATION EDITION": "RTX PRO 6000 WS"}
"""GPU names of drivers, with the name by which the model is rented."""

_VARIANT_WORDS = frozenset({"D", "TI", "SUPER", "LAPTOP", "MAX", "Q"})
"""Words of a name that mark another GPU model."""


def peak_of(name: str) -> GpuPeak | None:
    """Look up the peak of a GPU by its full name, a driver's or a market's; None: it is not in the table."""
    return PEAKS.get(model_of(name))


def model_of(name: str) -> str:
    """Return the model of a GPU by its full name, a driver's or a market's; the name if it is not there."""
    words = f" {name.upper().replace('-', ' ')} "
    for driver, market in _MARKET_NAMES.items():
        words = words.replace(driver, market)
    part = max((part for part in PEAKS if f" {part.upper()} " in words), key=len, default="")
    if _VARIANT_WORDS & (set(words.split()) - set(part.upper().split())):
        return name
    return part or name
