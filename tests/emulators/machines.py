"""The machines of the market: what hosts own and for how much they rent it out."""

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

DAY_S = 86400.0


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A physical machine. Prices in $/h per GPU, sizes of the whole machine."""

    id: int
    host_id: int | None = None
    """Its owner's account; None: one of its own."""
    address: str = ""
    """Public address of its offers, where nothing answers; empty: one of its own."""
    gpu_name: str = "RTX 4090"
    gpus: int = 1
    gpu_ram_mb: int = 24564
    gpu_usd: float = 0.4
    min_bid_usd: float = 0.24
    compute_cap: int = 890
    flops: float = 82.6
    dlperf: float = 98.2
    gpu_mem_bw: float = 861.4
    nvlink_bw: float = 0.0
    cuda: float = 13.0
    driver: str = "580.95.05"
    cpu_name: str = "AMD EPYC 7543 32-Core Processor"
    cpu_cores: int = 64
    cpu_ram_mb: int = 257812
    disk_gb: float = 812.4
    storage_usd: float = 0.15
    """Per GB and month of 30 days."""
    inet_down: float = 934.1
    inet_up: float = 912.3
    inet_down_usd: float = 0.002
    """Per GB."""
    inet_up_usd: float = 0.002
    reliability: float = 0.9971
    verification: str = "verified"
    datacenter: bool = True
    static_ip: bool = True
    disk_bw: float = 2890.0
    """MB/s."""
    cpu_arch: str = "amd64"
    gpu_arch: str = "nvidia"
    geolocation: str = "Texas, US"
    direct_ports: int = 249
    days: float = 60.0
    """How long it can be rented from the start of the emulator on."""
    external: bool = False
    cluster_id: int | None = None
    """The physical cluster that it belongs to."""


@dataclass(frozen=True, kw_only=True)
class GpuModel:
    """What is known of a GPU by its name."""

    name: str
    ram_mb: int
    usd: float
    compute_cap: int
    flops: float
    dlperf: float
    mem_bw: float
    nvlink_bw: float = 0.0


GPU_MODELS = (
    GpuModel(name="RTX 3090", ram_mb=24576, usd=0.17, compute_cap=860, flops=35.3, dlperf=43.0, mem_bw=790.0),
    GpuModel(name="RTX 4090", ram_mb=24564, usd=0.4, compute_cap=890, flops=82.6, dlperf=98.2, mem_bw=861.4),
    GpuModel(
        name="RTX 5090", ram_mb=32607, usd=0.55, compute_cap=1200, flops=104.8, dlperf=190.0, mem_bw=1510.0
    ),
    GpuModel(name="L40S", ram_mb=46068, usd=0.6, compute_cap=890, flops=91.6, dlperf=93.0, mem_bw=700.0),
    GpuModel(
        name="A100 PCIE", ram_mb=81920, usd=0.8, compute_cap=800, flops=19.5, dlperf=61.0, mem_bw=1600.0
    ),
    GpuModel(
        name="A100 SXM4",
        ram_mb=81920,
        usd=0.95,
        compute_cap=800,
        flops=19.5,
        dlperf=66.0,
        mem_bw=1700.0,
        nvlink_bw=300.0,
    ),
    GpuModel(
        name="H100 SXM",
        ram_mb=81559,
        usd=2.1,
        compute_cap=900,
        flops=67.0,
        dlperf=290.0,
        mem_bw=2800.0,
        nvlink_bw=450.0,
    ),
    GpuModel(
        name="H200",
        ram_mb=143771,
        usd=2.6,
        compute_cap=900,
        flops=67.0,
        dlperf=310.0,
        mem_bw=4000.0,
        nvlink_bw=450.0,
    ),
)
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_PLACES = ("Texas, US", "Oregon, US", "Quebec, CA", "Sweden, SE", "Czechia, CZ", "Japan, JP", "Poland, PL")
_DRIVERS = ((12.4, "550.127.05"), (12.8, "570.133.20"), (13.0, "580.95.05"))


def here_mb() -> int:
    """How much memory a box has, which is this computer's: machines that promise more are not as offered."""
    have = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    texts = [path.read_text().strip() for path in map(Path, _LIMITS) if path.is_file()]
    return min([*have, *(int(text) for text in texts if text.isdecimal())]) // 10**6


def synthetic_machines(count: int, *, seed: int = 0) -> Sequence[Machine]:
    """A market of `count` machines, always the same for the same seed."""
    chance = random.Random(seed)
    return [_synthetic(41000 + index, GPU_MODELS[index % len(GPU_MODELS)], chance) for index in range(count)]


def _synthetic(machine_id: int, model: GpuModel, chance: random.Random) -> Machine:
    gpus = chance.choice((1, 2, 4, 8))
    price = round(model.usd * chance.uniform(0.8, 1.5), 4)
    cuda, driver = chance.choice(_DRIVERS)
    return Machine(
        id=machine_id,
        host_id=88000 + machine_id % 97,
        gpu_name=model.name,
        gpus=gpus,
        gpu_ram_mb=model.ram_mb,
        gpu_usd=price,
        min_bid_usd=round(price * 0.6, 4),
        compute_cap=model.compute_cap,
        flops=model.flops,
        dlperf=model.dlperf,
        gpu_mem_bw=model.mem_bw,
        nvlink_bw=model.nvlink_bw if gpus > 1 else 0.0,
        cuda=cuda,
        driver=driver,
        cpu_ram_mb=64000 * gpus,
        cpu_cores=16 * gpus,
        disk_gb=round(chance.uniform(100, 2000), 1),
        storage_usd=round(chance.uniform(0.1, 0.3), 3),
        inet_down=round(chance.uniform(80, 5000), 1),
        inet_up=round(chance.uniform(50, 3000), 1),
        inet_down_usd=round(chance.choice((0.0, 0.002, 0.01, 0.02)), 4),
        inet_up_usd=round(chance.choice((0.0, 0.002, 0.01, 0.02)), 4),
        reliability=round(chance.uniform(0.93, 0.9995), 4),
        verification=chance.choice(("verified", "verified", "verified", "unverified", "deverified")),
        datacenter=chance.random() < 0.4,
        static_ip=machine_id % 3 > 0,
        disk_bw=400.0 + 500.0 * (machine_id % 7),
        geolocation=chance.choice(_PLACES),
        direct_ports=chance.choice((0, 20, 249, 499)),
        days=round(chance.uniform(0.5, 120), 2),
    )
