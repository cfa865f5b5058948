"""Vast's rows as nouns: what is used of an offer and of an instance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launcher.errors import UnreachableError
from launcher.model import Extras
from launcher.providers.vast.refusals import silent


@dataclass(frozen=True, kw_only=True)
class OfferRow:
    """One offer. Units as in the names; Vast's own are MB, Mbit/s and dollars."""

    id: str
    machine_id: str
    gpu_name: str
    gpus: int
    gpu_memory_gb: float
    memory_gb: float
    """This offer's share of the machine's."""
    disk_gb: float
    cuda: float
    """The newest CUDA that the driver supports."""
    compute_cap: int
    reliability: float
    country: str
    """Two letters, or empty."""
    place: str
    verified: bool
    rentable: bool
    cpu_arch: str
    end_date: float
    """Epoch seconds: the host takes the machine back."""
    usd_per_hour: float
    """GPU and storage, on demand or at the lowest bid."""
    min_bid_usd: float
    extras: Extras
    down_mbps: float
    dlperf: float

    @classmethod
    def of(cls, row: Any) -> OfferRow | None:
        """None where the row lacks what it needs, or makes no sense."""
        try:
            return cls._read(row)
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    @classmethod
    def _read(cls, row: Mapping[str, Any]) -> OfferRow:
        place = str(row.get("geolocation") or "")
        country = place.rpartition(",")[2].strip()
        return cls(
            id=str(int(row.get("ask_contract_id") or row["id"])),
            machine_id=str(int(row["machine_id"])),
            gpu_name=str(row["gpu_name"]),
            gpus=int(row["num_gpus"]),
            gpu_memory_gb=float(row["gpu_ram"]) / 1000,
            memory_gb=float(row["cpu_ram"]) * float(row.get("gpu_frac") or 1.0) / 1000,
            disk_gb=float(row["disk_space"]),
            cuda=float(row.get("cuda_max_good") or 0.0),
            compute_cap=int(row.get("compute_cap") or 0),
            reliability=float(row.get("reliability") or row.get("reliability2") or 0.0),
            country=country if len(country) == 2 else "",
            place=place,
            verified=row.get("verification") == "verified",
            rentable=row.get("rentable") is not False and row.get("rented") is not True,
            cpu_arch=str(row.get("cpu_arch") or "amd64"),
            end_date=float(row.get("end_date") or 0.0),
            usd_per_hour=float(row["dph_total"]),
            min_bid_usd=float(row.get("min_bid") or 0.0),
            extras=_extras(row),
            down_mbps=float(row.get("inet_down") or 0.0),
            dlperf=float(row.get("dlperf") or 0.0),
        )


@dataclass(frozen=True, kw_only=True)
class InstanceRow:
    """One instance. Only the id is sure to be there: everything else may still be unknown."""

    id: str
    label: str
    machine_id: str
    actual_status: str
    """As the host last said; it lags by minutes."""
    cur_state: str
    intended_status: str
    status_msg: str
    is_bid: bool
    gpu_name: str
    gpus: int
    memory_gb: float
    disk_gb: float
    cuda: float
    """Empty or 0 in these five: not known."""
    usd_per_hour: float
    """GPU and storage."""
    extras: Extras
    up_s: float | None
    """How long it runs, as the host says."""
    down_gb: float
    up_gb: float
    """Traffic that is billed."""
    start_date: float
    end_date: float
    """Epoch seconds; 0 when unknown."""
    direct: tuple[str, int] | None
    """Where sshd is reached without a detour."""
    proxy: tuple[str, int] | None

    @property
    def state(self) -> str:
        """`running`, `loading`, or Vast's own word."""
        if self.actual_status in ("", "created"):
            return "loading"
        return self.actual_status

    @property
    def is_idle(self) -> bool:
        """Only its disk is billed: it loads, has lost its GPUs, or its host is away."""
        return self.state == "loading" or self.cur_state == "stopped" or self.actual_status == "offline"

    @property
    def is_stopped(self) -> bool:
        """It does not run, and is not meant to."""
        return self.cur_state == self.intended_status == "stopped"

    @classmethod
    def of(cls, row: Any) -> InstanceRow:
        """Raises UnreachableError on a row that cannot be read: it may be ours."""
        try:
            return cls._read(row)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _unreadable(row) from error

    @classmethod
    def _read(cls, row: Mapping[str, Any]) -> InstanceRow:
        address = str(row.get("public_ipaddr") or "").strip()
        direct_port = _host_port(row.get("ports"))
        proxy_host, proxy_port = str(row.get("ssh_host") or "").strip(), int(row.get("ssh_port") or 0)
        return cls(
            id=str(int(row["id"])),
            label=str(row.get("label") or ""),
            machine_id=str(row.get("machine_id") or ""),
            actual_status=str(row.get("actual_status") or ""),
            cur_state=str(row.get("cur_state") or ""),
            intended_status=str(row.get("intended_status") or ""),
            status_msg=str(row.get("status_msg") or "").strip(),
            is_bid=bool(row.get("is_bid")),
            gpu_name=str(row.get("gpu_name") or ""),
            gpus=int(row.get("num_gpus") or 0),
            memory_gb=float(row.get("cpu_ram") or 0.0) * float(row.get("gpu_frac") or 1.0) / 1000,
            disk_gb=max(0.0, float(row.get("disk_space") or 0.0)),
            cuda=float(row.get("cuda_max_good") or 0.0),
            usd_per_hour=float(row.get("dph_total") or 0.0),
            extras=_extras(row),
            up_s=None if row.get("uptime_mins") is None else float(row["uptime_mins"]) * 60,
            down_gb=float(row.get("inet_down_billed") or 0.0),
            up_gb=float(row.get("inet_up_billed") or 0.0),
            start_date=float(row.get("start_date") or 0.0),
            end_date=float(row.get("end_date") or 0.0),
            direct=(address, direct_port) if address and direct_port else None,
            proxy=(proxy_host, proxy_port) if proxy_host and proxy_port else None,
        )


def _extras(row: Mapping[str, Any]) -> Extras:
    total_usd, gpu_usd = float(row.get("dph_total") or 0.0), float(row.get("dph_base") or 0.0)
    return Extras(
        storage_usd_per_hour=max(0.0, total_usd - gpu_usd) if gpu_usd else 0.0,
        down_usd_per_gb=float(row.get("inet_down_cost") or 0.0),
        up_usd_per_gb=float(row.get("inet_up_cost") or 0.0),
    )


def _host_port(ports: Mapping[str, Any] | None) -> int:
    """The port of the host that leads to the container's sshd; 0 while there is none."""
    mapped = (ports or {}).get("22/tcp") or []
    return int(mapped[0]["HostPort"]) if mapped else 0


def _unreadable(row: Any) -> UnreachableError:
    named = row.get("id") if isinstance(row, dict) else None
    return silent(f"the row of instance {named} cannot be read")
