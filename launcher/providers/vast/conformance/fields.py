"""Fields of Vast's answers that vastrun reads, with their types; `|null` where it does without."""

from __future__ import annotations

from collections.abc import Mapping

OFFER: Mapping[str, str] = {
    "id": "number",
    "ask_contract_id": "number",
    "machine_id": "number",
    "gpu_name": "text",
    "num_gpus": "number",
    "gpu_ram": "number",
    "gpu_frac": "number",
    "cpu_ram": "number",
    "cpu_arch": "text|null",
    "disk_space": "number",
    "cuda_max_good": "number|null",
    "compute_cap": "number|null",
    "reliability": "number|null",
    "geolocation": "text|null",
    "verification": "text",
    "rentable": "bool",
    "rented": "bool",
    "end_date": "number|null",
    "dph_base": "number",
    "dph_total": "number",
    "min_bid": "number|null",
    "inet_down": "number|null",
    "inet_down_cost": "number",
    "inet_up_cost": "number",
    "dlperf": "number|null",
    "cluster_id": "number|null",
}
INSTANCE: Mapping[str, str] = {
    "id": "number",
    "label": "text",
    "machine_id": "number",
    "actual_status": "text|null",
    "cur_state": "text|null",
    "intended_status": "text|null",
    "status_msg": "text|null",
    "is_bid": "bool",
    "gpu_name": "text",
    "num_gpus": "number",
    "gpu_frac": "number|null",
    "cpu_ram": "number",
    "disk_space": "number",
    "cuda_max_good": "number|null",
    "dph_base": "number",
    "dph_total": "number",
    "inet_down_cost": "number",
    "inet_up_cost": "number",
    "inet_down_billed": "number|null",
    "inet_up_billed": "number|null",
    "start_date": "number",
    "end_date": "number|null",
    "image_uuid": "text",
}
RUNNING: Mapping[str, str] = {
    "uptime_mins": "number",
    "public_ipaddr": "text",
    "ports": "object",
    "ssh_host": "text",
    "ssh_port": "number",
}
CREATE: Mapping[str, str] = {"success": "bool", "new_contract": "number"}
CHARGE: Mapping[str, str] = {
    "source": "text",
    "type": "text",
    "start": "number",
    "end": "number",
    "amount": "number",
    "metadata": "object",
    "items": "list",
}
UNITS: Mapping[str, str] = {
    "gpu_ram": "MB",
    "cpu_ram": "MB",
    "disk_space": "GB",
    "reliability": "fraction",
    "end_date": "epoch s",
    "compute_cap": "hundreds",
    "cuda_max_good": "plain",
}
