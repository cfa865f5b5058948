"""An offer as the API prints it."""

from ipaddress import ip_address
from typing import Any

from tests.emulators.machines import DAY_S, Machine

LOOPBACK = "127.0.0.1"
"""Boxes are reached on this computer. Instance rows pad it with a newline, as Vast does."""


def driver_number(version: str) -> int:
    """`535.86.05` as 535086005."""
    major, minor, patch = (*version.split("."), "0", "0")[:3]
    return int(major) * 1_000_000 + int(minor) * 1_000 + int(patch)


def storage_usd_per_hour(machine: Machine, storage_gb: float) -> float:
    """What so much disk costs, running or not."""
    return round(machine.storage_usd * storage_gb / 720.0, 6)


def costs(gpu_usd: float, disk_usd: float) -> dict[str, float]:
    """The price split as rows carry it, $/h."""
    total = round(gpu_usd + disk_usd, 6)
    return {
        "gpuCostPerHour": gpu_usd,
        "diskHour": disk_usd,
        "totalHour": total,
        "discountTotalHour": 0,
        "discountedTotalPerHour": total,
    }


def machine_columns(machine: Machine, gpus: int) -> dict[str, Any]:
    """The columns that offers and instances share: what the hardware is."""
    return {
        "machine_id": machine.id,
        "host_id": machine.id + 40_000 if machine.host_id is None else machine.host_id,
        "bundle_id": 1_024_000_000 + machine.id,
        "hosting_type": int(machine.datacenter),
        "external": machine.external,
        "resource_type": "gpu",
        "cluster_id": machine.cluster_id,
        **_gpu_columns(machine, gpus),
        **_board_columns(machine, gpus),
        **_network_columns(machine),
        **_reputation_columns(machine),
    }


def offer_row(
    machine: Machine, *, ask_id: int, gpus: int, storage_gb: float, bid: bool, now: float, end_date: float
) -> dict[str, Any]:
    """The offer, priced for so much disk; a bid's price is the lowest that wins."""
    gpu_usd = round((machine.min_bid_usd if bid else machine.gpu_usd) * gpus, 6)
    disk_usd = storage_usd_per_hour(machine, storage_gb)
    return {
        "id": ask_id,
        "ask_contract_id": ask_id,
        "bundled_results": 1,
        **machine_columns(machine, gpus),
        "disk_space": round(machine.disk_gb * gpus / machine.gpus, 1),
        "public_ipaddr": machine.address or str(ip_address(LOOPBACK) + machine.id),
        "direct_port_start": 40000,
        "min_bid": round(machine.min_bid_usd * gpus, 6),
        "is_bid": bid,
        **_price_columns(machine, gpus, gpu_usd, disk_usd),
        "rentable": True,
        "rented": False,
        "start_date": now - 30 * DAY_S,
        "end_date": end_date,
        "duration": end_date - now,
        "time_remaining": "",
        "time_remaining_isbid": "",
        "avail_vol_ask_id": None,
        "avail_vol_dph": None,
        "avail_vol_size": None,
    }


def _gpu_columns(machine: Machine, gpus: int) -> dict[str, Any]:
    return {
        "gpu_name": machine.gpu_name,
        "num_gpus": gpus,
        "gpu_frac": gpus / machine.gpus,
        "gpu_ids": list(range(gpus)),
        "gpu_ram": machine.gpu_ram_mb,
        "gpu_total_ram": machine.gpu_ram_mb * gpus,
        "gpu_arch": machine.gpu_arch,
        "gpu_display_active": False,
        "gpu_lanes": 16,
        "gpu_mem_bw": machine.gpu_mem_bw,
        "gpu_max_power": 450.0,
        "gpu_max_temp": 90.0,
        "compute_cap": machine.compute_cap,
        "cuda_max_good": machine.cuda,
        "driver_version": machine.driver,
        "driver_vers": driver_number(machine.driver),
        "total_flops": round(machine.flops * gpus, 2),
        "bw_nvlink": machine.nvlink_bw,
        "dlperf": round(machine.dlperf * gpus, 2),
    }


def _board_columns(machine: Machine, gpus: int) -> dict[str, Any]:
    return {
        "pcie_bw": 21.7,
        "pci_gen": 4.0,
        "mobo_name": "ROMED8-2T",
        "cpu_name": machine.cpu_name,
        "cpu_arch": machine.cpu_arch,
        "cpu_cores": machine.cpu_cores,
        "cpu_cores_effective": round(machine.cpu_cores * gpus / machine.gpus, 2),
        "cpu_ghz": 2.8,
        "cpu_ram": round(machine.cpu_ram_mb * gpus / machine.gpus),
        "has_avx": 1,
        "disk_bw": machine.disk_bw,
        "disk_name": "SAMSUNG MZQL23T8",
        "storage_cost": machine.storage_usd,
        "os_version": "22.04",
        "vms_enabled": False,
        "is_vm_deverified": False,
    }


def _network_columns(machine: Machine) -> dict[str, Any]:
    return {
        "inet_up": machine.inet_up,
        "inet_down": machine.inet_down,
        "inet_up_cost": machine.inet_up_usd,
        "inet_down_cost": machine.inet_down_usd,
        "internet_up_cost_per_tb": round(machine.inet_up_usd * 1024, 4),
        "internet_down_cost_per_tb": round(machine.inet_down_usd * 1024, 4),
        "static_ip": machine.static_ip,
        "direct_port_count": machine.direct_ports,
        "geolocation": machine.geolocation,
        "geolocode": None,
        "hostname": None,
    }


def _reputation_columns(machine: Machine) -> dict[str, Any]:
    return {
        "reliability": machine.reliability,
        "reliability2": machine.reliability,
        "reliability_mult": 0.99,
        "expected_reliability": 0.995,
        "verification": machine.verification,
        "vericode": int(machine.verification == "verified"),
        "credit_discount_max": 0.1,
        "logo": "/static/logos/x.svg",
        "webpage": None,
    }


def _price_columns(machine: Machine, gpus: int, gpu_usd: float, disk_usd: float) -> dict[str, Any]:
    total = round(gpu_usd + disk_usd, 6)
    performance, flops = machine.dlperf * gpus, machine.flops * gpus
    per_usd = 1 / max(total, 1e-9)
    return {
        "dph_base": gpu_usd,
        "dph_total": total,
        "dph_total_adj": total,
        "storage_total_cost": disk_usd,
        "vram_costperhour": round(gpu_usd / (machine.gpu_ram_mb * gpus), 9),
        "dlperf_per_dphtotal": round(performance * per_usd, 2),
        "flops_per_dphtotal": round(flops * per_usd, 2),
        "score": round(performance * per_usd * machine.reliability, 2),
        "discount_rate": 0,
        "discounted_hourly": 0,
        "discounted_dph_total": total,
        "platform_fee": 0,
        "rn": 1,
        "search": costs(gpu_usd, disk_usd),
        "instance": costs(0, disk_usd),
    }
