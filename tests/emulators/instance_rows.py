"""An instance as the API prints it."""

from typing import Any

from tests.emulators.instance import SSH_PORT, Instance
from tests.emulators.offer_rows import LOOPBACK, costs, driver_number, machine_columns, storage_usd_per_hour


def instance_row(instance: Instance, now: float) -> dict[str, Any]:
    """All columns that one look at the instance shows."""
    return {
        **machine_columns(instance.machine, len(instance.gpu_names)),
        **_hardware(instance),
        **_status(instance, now),
        **_request(instance),
        **_network(instance),
        **_money(instance),
    }


def spoil(row: dict[str, Any], fault: str) -> dict[str, Any]:
    """The row as a ROW fault shows it."""
    spoiled: dict[str, dict[str, Any]] = {
        "malformed_row": {"start_date": None, "extra_env": None},
        "no_ports": {"ports": None},
        "ports_list": {"ports": [8080, 8081]},
        "port_null": {"ports": {"22/tcp": [{"HostIp": "0.0.0.0", "HostPort": None}]}},
        "port_empty": {"ports": {"22/tcp": [{}]}},
        "odd_columns": {"dph_base": "n/a", "uptime_mins": {}, "cpu_ram": [1], "ports": "22", "gpu_frac": {}},
        "listed_loading": {"actual_status": "loading"}
        | dict.fromkeys(("ports", "uptime_mins", "status_msg")),
        "status_lag": {"actual_status": "exited"},
        "traffic_null": {"inet_down_billed": None, "inet_up_billed": None},
        "traffic_jumps": {"inet_down_billed": 1e9, "inet_up_billed": 1e9},
    }
    return {**row, **spoiled[fault]}


def _hardware(instance: Instance) -> dict[str, Any]:
    names, machine = instance.gpu_names, instance.machine
    halved = 0.5 if "low_memory" in instance.flaws else 1.0
    return {
        "gpu_name": names[0] if names else None,
        "gpu_totalram": machine.gpu_ram_mb * len(names),
        "cpu_ram": int(machine.cpu_ram_mb * halved),
        "mem_limit": round(machine.cpu_ram_mb / 1024 * instance.gpus / machine.gpus * halved, 1),
        "disk_space": instance.rental.disk_gb * (0.5 if "small_disk" in instance.flaws else 1.0),
        "driver_version": instance.driver,
        "driver_vers": driver_number(instance.driver),
        "cuda_max_good": instance.cuda,
        "country_code": machine.geolocation.rpartition(", ")[2],
    }


def _status(instance: Instance, now: float) -> dict[str, Any]:
    up = instance.runs
    return {
        "id": instance.id,
        "actual_status": instance.actual,
        "cur_state": instance.cur,
        "intended_status": instance.intended,
        "next_state": instance.intended,
        "status_msg": instance.status_msg,
        "start_date": instance.created_at,
        "end_date": instance.end_date,
        "duration": instance.end_date - now,
        "uptime_mins": round((now - instance.running_since) / 60, 3) if instance.running_since else None,
        "time_remaining": "",
        "gpu_util": 0.0 if up else None,
        "gpu_temp": 41.0 if up else None,
        "cpu_util": 0.03 if up else 0.0,
        "mem_usage": 0.4 if up else 0.0,
        "vmem_usage": 0.0,
        "disk_usage": 3.1 if up else -1,
        "disk_util": 0.0 if up else -1,
        "client_run_time": 1.1,
        "host_run_time": 2592000.0,
    }


def _request(instance: Instance) -> dict[str, Any]:
    rental = instance.rental
    return {
        "label": instance.label,
        "template_id": None,
        "template_hash_id": None,
        "template_name": None,
        "image_uuid": rental.image,
        "image_args": [],
        "image_runtype": rental.runtype,
        "extra_env": [[name, value] for name, value in rental.env.items()],
        "onstart": rental.onstart or None,
        "jupyter_token": instance.api_key[:16],
    }


def _network(instance: Instance) -> dict[str, Any]:
    proxy = instance.ports.get("proxy")
    published = {name: port.number for name, port in instance.ports.items() if name != "proxy"}
    numbers = sorted(published.values())
    return {
        "ssh_host": LOOPBACK if proxy else None,
        "ssh_idx": "5" if proxy else None,
        "ssh_port": proxy.number if proxy else None,
        "machine_dir_ssh_port": published.get(SSH_PORT),
        "public_ipaddr": f"{instance.address}\n" if instance.runs else None,
        "local_ipaddrs": "192.168.1.20 172.17.0.1 \n",
        "ports": {name: _published(number) for name, number in published.items()} if instance.runs else None,
        "direct_port_start": numbers[0] if numbers and instance.runs else -1,
        "direct_port_end": numbers[-1] if numbers and instance.runs else -1,
    }


def _published(number: int) -> list[dict[str, str]]:
    return [{"HostIp": address, "HostPort": str(number)} for address in ("0.0.0.0", "::")]


def _money(instance: Instance) -> dict[str, Any]:
    gpu_usd = instance.gpu_usd_per_hour
    disk_usd = storage_usd_per_hour(instance.machine, instance.rental.disk_gb)
    received, sent = instance.traffic
    return {
        "dph_base": gpu_usd,
        "dph_total": round(gpu_usd + disk_usd, 6),
        "is_bid": instance.bid_usd is not None,
        "storage_total_cost": disk_usd,
        "inet_down_billed": received / 1024,
        "inet_up_billed": sent / 1024,
        "rentable": True,
        "rented": True,
        "credit_balance": None,
        "credit_discount": None,
        "search": costs(gpu_usd, disk_usd),
        "instance": costs(gpu_usd if instance.meter.gpu_on else 0, disk_usd),
    }
