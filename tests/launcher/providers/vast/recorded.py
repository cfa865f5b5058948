"""Rows of instances as others recorded them, the values that matter, and what they mean.

Ports, addresses and ids of machines are replaced where they were published. Dates: when it was seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vastrun.launcher.core import Cause

Address = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class RecordedInstance:
    """A recorded row and how it is to be read."""

    row: Mapping[str, Any]
    state: str
    is_idle: bool
    usd_per_hour: float = 0.0
    direct: Address | None = None
    proxy: Address | None = None
    down_gb: float = 0.0
    up_gb: float = 0.0
    up_s: float | None = None
    is_gone: bool = False
    """Its machine was destroyed."""
    fault: Cause | None = None
    """Why its start has failed."""
    is_tried: bool = False
    """Whether SSH is tried a minute after its start."""


INSTANCES: Mapping[str, RecordedInstance] = {
    # Asked for by its id, 2026-02: running, without label, ports or traffic.
    "running, 2026-02": RecordedInstance(
        row={
            "id": 31051696,
            "label": None,
            "actual_status": "running",
            "cur_state": "running",
            "intended_status": "running",
            "next_state": "running",
            "status_msg": "success, running vastai/comfy_v0.10.0-cuda-12.9-py312/ssh",
            "machine_id": 39273,
            "gpu_name": "RTX 5060 Ti",
            "num_gpus": 1,
            "gpu_frac": 0.16666666666666666,
            "cpu_ram": 128673,
            "disk_space": 205,
            "cuda_max_good": 13.1,
            "dph_base": 0.08666666666666667,
            "dph_total": 0.1436111111111111,
            "inet_down_billed": None,
            "inet_up_billed": None,
            "inet_down_cost": 0.0026041666666666665,
            "inet_up_cost": 0.00390625,
            "is_bid": False,
            "public_ipaddr": "203.0.113.7",
            "ssh_host": "ssh7.vast.ai",
            "ssh_port": 11696,
            "start_date": 1770472935.7220194,
            "end_date": 1788271242,
            "time_remaining": "Unlimited",
            "uptime_mins": None,
            "dlperf": None,
        },
        state="running",
        is_idle=False,
        usd_per_hour=0.1436111111111111,
        proxy=("ssh7.vast.ai", 11696),
        is_tried=True,
    ),
    # 2026-09: no sign of its container. Its author saw it charged; it is tried after a while.
    "loading, 2026-09": RecordedInstance(
        row={
            "id": 50055626,
            "machine_id": 150014,
            "actual_status": "loading",
            "cur_state": "running",
            "intended_status": "running",
            "label": "vast-fruit",
            "dph_total": 0.16666666666666666,
            "dph_base": 0.13333333333333333,
            "num_gpus": 1,
            "gpu_name": "Tesla T4",
            "disk_space": 120.0,
            "cuda_max_good": 13.2,
            "ssh_host": "ssh3.vast.ai",
            "ssh_port": 15626,
            "start_date": 1788694346.9469156,
            "end_date": 1788704346.0,
            "volume_info": [],
        },
        state="loading",
        is_idle=True,
        usd_per_hour=0.16666666666666666,
        proxy=("ssh3.vast.ai", 15626),
    ),
    # Vast's documentation of a single instance: ports are numbers, and no status at all.
    "documented by id": RecordedInstance(
        row={
            "id": 883,
            "label": None,
            "machine_id": 178,
            "extra_env": [],
            "onstart": None,
            "gpu_name": "RTX A5000",
            "num_gpus": 1,
            "gpu_frac": 0.125,
            "cpu_ram": 128576,
            "disk_space": 10,
            "ports": [8080, 8081],
            "public_ipaddr": "203.0.113.7",
            "ssh_host": "ssh2281.vast.ai",
            "ssh_port": 10882,
            "dph_base": 1,
            "dph_total": 1.0020740740740741,
            "is_bid": False,
            "start_date": 1761008618.225083,
            "end_date": 2034617753,
            "uptime_mins": None,
        },
        state="loading",
        is_idle=True,
        usd_per_hour=1.0020740740740741,
        proxy=("ssh2281.vast.ai", 10882),
    ),
    "broken CDI, 2026-08": RecordedInstance(
        row={
            "id": 47474765,
            "machine_id": 1,
            "actual_status": "created",
            "cur_state": "stopped",
            "status_msg": "Error response from daemon: failed to create shim task: OCI runtime create failed",
        },
        state="loading",
        is_idle=True,
    ),
    "registry unreachable, 2026-08": RecordedInstance(
        row={
            "id": 47474766,
            "machine_id": 1,
            "actual_status": "created",
            "cur_state": "stopped",
            "status_msg": "error pulling image configuration: download failed after attempts=6: read tcp "
            "[2001:db8::1]:41550->[2001:db8::2]:443: read: connection reset by peer",
        },
        state="loading",
        is_idle=True,
    ),
    "pull is retried, 2026-08": RecordedInstance(
        row={
            "id": 1,
            "machine_id": 1,
            "actual_status": "loading",
            "cur_state": "stopped",
            "status_msg": "0d30c18b26f8: Retrying in 5 seconds",
        },
        state="loading",
        is_idle=True,
    ),
    "never scheduled, 2026-10": RecordedInstance(
        row={
            "id": 52298608,
            "machine_id": 1,
            "actual_status": "loading",
            "cur_state": "stopped",
            "intended_status": "stopped",
            "next_state": "stopped",
            "status_msg": None,
        },
        state="loading",
        is_idle=True,
        fault=Cause.HOST,
    ),
    # 2026-09: it served for 57 minutes while it was listed so, and was charged.
    "serves while it loads, 2026-09": RecordedInstance(
        row={
            "id": 51742546,
            "machine_id": 2,
            "actual_status": "loading",
            "cur_state": "running",
            "intended_status": "running",
            "status_msg": "success, running vastai/comfy/ssh\n",
            "uptime_mins": 57,
            "dph_base": 0.3,
            "dph_total": 0.31,
            "public_ipaddr": "203.0.113.7",
            "ports": {"22/tcp": [{"HostIp": "0.0.0.0", "HostPort": "42831"}]},
            "ssh_host": "ssh7.vast.ai",
            "ssh_port": 35446,
        },
        state="running",
        is_idle=False,
        usd_per_hour=0.31,
        up_s=3450.0,
        direct=("203.0.113.7", 42831),
        proxy=("ssh7.vast.ai", 35446),
        is_tried=True,
    ),
    # 2026-07: a bid that boots again under the same id.
    "exited, then boots": RecordedInstance(
        row={
            "id": 45938720,
            "machine_id": 28164,
            "actual_status": "exited",
            "cur_state": "running",
            "intended_status": "running",
            "is_bid": True,
            "status_msg": "",
            "gpu_util": None,
            "dph_total": 0.0476,
        },
        state="exited",
        is_idle=False,
        usd_per_hour=0.0476,
        is_tried=True,
    ),
    "scheduling": RecordedInstance(
        row={
            "id": 42,
            "actual_status": "scheduling",
            "intended_status": "running",
            "gpu_name": "RTX 3090",
            "status_msg": "Attempting to schedule your instance. Your GPU is currently in use.",
        },
        state="scheduling",
        is_idle=False,
    ),
    # 2026-09: measured on a line of 1,027 Mbit/s: its counter rose by 1,782,579 in 380 s. Kilobytes.
    "traffic, 2026-09": RecordedInstance(
        row={
            "id": 50090759,
            "machine_id": 41234,
            "actual_status": "running",
            "cur_state": "running",
            "intended_status": "running",
            "status_msg": "success, running vastai/pytorch/ssh\n",
            "label": None,
            "num_gpus": 2,
            "gpu_name": "RTX 4090",
            "dph_base": 0.8,
            "dph_total": 0.82,
            "inet_down": 1027.0,
            "inet_down_billed": 1782579.2,
            "inet_up_billed": 5713.92,
            "inet_down_cost": 0.0013020833333333333,
            "inet_up_cost": 0.0013020833333333333,
        },
        state="running",
        is_idle=False,
        usd_per_hour=0.82,
        down_gb=1.7,
        up_gb=5.58 / 1024,
        is_tried=True,
    ),
    "little traffic, 2026-08": RecordedInstance(
        row={
            "id": 21,
            "machine_id": 41234,
            "actual_status": "running",
            "cur_state": "running",
            "intended_status": "running",
            "status_msg": "success, running vastai/pytorch/ssh\n",
            "label": None,
            "num_gpus": 2,
            "gpu_name": "RTX 4090",
            "dph_base": 0.8,
            "dph_total": 0.82,
            "inet_down": 1027.0,
            "inet_down_billed": 5713.92,
            "inet_up_billed": None,
            "disk_usage": 0.188,
            "gpu_util": 86.5,
            "inet_down_cost": 0.0026041666666666665,
            "inet_up_cost": 0.00390625,
        },
        state="running",
        is_idle=False,
        usd_per_hour=0.82,
        down_gb=5.58 / 1024,
        is_tried=True,
    ),
    # 2026-09: its message is that of its start.
    "stopped, stale message": RecordedInstance(
        row={
            "id": 49433042,
            "machine_id": 1,
            "gpu_name": "A100 PCIE",
            "actual_status": "exited",
            "cur_state": "stopped",
            "intended_status": "stopped",
            "status_msg": "success, running nvidia/cuda_12.4.1-devel-ubuntu22.04/ssh\n",
            "disk_space": 120,
            "dph_base": 0.6,
            "dph_total": 0.6333,
        },
        state="exited",
        is_idle=True,
        usd_per_hour=0.6333,
        is_tried=True,
    ),
    # 2026-10: four minutes after the order of a bid, by its id.
    "outbid while it loads": RecordedInstance(
        row={
            "id": 1,
            "actual_status": "loading",
            "intended_status": "stopped",
            "cur_state": "stopped",
            "next_state": "stopped",
            "status_msg": "\n#5 [2/6] RUN mkdir -p /tmp; chmod 1777 /tmp; exit 0;\n",
        },
        state="loading",
        is_idle=True,
        fault=Cause.HOST,
    ),
    # Of the tests of Vast's own client.
    "image is not built": RecordedInstance(
        row={
            "id": 123,
            "machine_id": 1,
            "status_msg": "docker_build() error writing dockerfile",
            "actual_status": "loading",
            "intended_status": "stopped",
        },
        state="loading",
        is_idle=True,
    ),
}
