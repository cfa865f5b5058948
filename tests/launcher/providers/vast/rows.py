"""Rows as Vast sends them, for tests that need no market."""

from typing import Any

from vastrun.launcher.image.lock import shipped_lock
from vastrun.launcher.providers.vast.instance_row import InstanceRow
from vastrun.launcher.providers.vast.rows import OfferRow

NOW = 1_800_000_000.0
DAY_S = 86_400.0
LOCK = shipped_lock()


def offer(**changes: Any) -> dict[str, Any]:
    """An offer for one RTX 4090 that every test's job can take, but for the changes."""
    row = {
        "id": 50751794,
        "ask_contract_id": 50751794,
        "machine_id": 41234,
        "gpu_name": "RTX 4090",
        "num_gpus": 1,
        "gpu_ram": 24564,
        "gpu_frac": 0.25,
        "cpu_ram": 257812,
        "cpu_arch": "amd64",
        "disk_space": 812.4,
        "cuda_max_good": 13.0,
        "compute_cap": 890,
        "reliability": 0.9971,
        "geolocation": "Texas, US",
        "verification": "verified",
        "rentable": True,
        "rented": False,
        "end_date": NOW + 30 * DAY_S,
        "dph_base": 0.4,
        "dph_total": 0.41,
        "min_bid": 0.24,
        "inet_down": 934.1,
        "inet_down_cost": 0.002,
        "inet_up_cost": 0.002,
        "dlperf": 98.2,
    }
    return row | changes


def offer_row(**changes: Any) -> OfferRow:
    row = OfferRow.of(offer(**changes))
    assert row is not None
    return row


def instance(**changes: Any) -> dict[str, Any]:
    """A running instance, but for the changes."""
    row = {
        "id": 52607650,
        "label": "vastrun-calm-heron-3f1a",
        "machine_id": 41234,
        "actual_status": "running",
        "cur_state": "running",
        "intended_status": "running",
        "status_msg": "success, running pytorch_pytorch_2.13.0/ssh\n",
        "public_ipaddr": "203.0.113.7\n",
        "ports": {"22/tcp": [{"HostIp": "0.0.0.0", "HostPort": "40101"}]},
        "ssh_host": "ssh5.vast.ai",
        "ssh_port": 17650,
        "dph_total": 0.41,
        "start_date": NOW,
    }
    return row | changes


def instance_row(**changes: Any) -> InstanceRow:
    return InstanceRow.of(instance(**changes))
