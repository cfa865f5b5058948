"""Vast's rows as nouns: what is used of an offer, an instance and a charge."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from launcher.core import Charge, ExtraRates
from launcher.core.errors import UnreachableError
from launcher.providers.vast.refusals import silent

_WHAT_A_ROW_RAISES = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
_LARGEST = 1e12
_MOST_CHARACTERS = 4000
_LONGEST_LABEL = 256
_MOST_USD = 1e9
_STORAGE, _TRAFFIC = ("disk",), ("bwd", "bwu")
"""The kinds of a charge's items that are for its disk, and for bytes in and out."""


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
    extras: ExtraRates
    down_mbps: float
    dlperf: float
    cluster: str
    """The physical cluster that the machine belongs to; empty: none."""

    @classmethod
    def of(cls, row: Any) -> OfferRow | None:
        """Read a row; None where it lacks what it needs, or makes no sense."""
        try:
            return cls._read(row)
        except _WHAT_A_ROW_RAISES:
            return None

    @classmethod
    def _read(cls, row: Mapping[str, Any]) -> OfferRow:
        place = _text(row.get("geolocation"))
        country = place.rpartition(",")[2].strip()
        return cls(
            id=str(int(row.get("ask_contract_id") or row["id"])),
            machine_id=str(int(row["machine_id"])),
            gpu_name=_text(row["gpu_name"]),
            gpus=int(_number(row["num_gpus"])),
            gpu_memory_gb=_number(row["gpu_ram"]) / 1000,
            # `cpu_ram` is of the whole machine, in MB; `gpu_frac` is the share that comes with the GPUs.
            memory_gb=_number(row["cpu_ram"]) * _number(row.get("gpu_frac") or 1.0) / 1000,
            disk_gb=_number(row["disk_space"]),
            cuda=_number(row.get("cuda_max_good")),
            compute_cap=int(_number(row.get("compute_cap"))),
            reliability=_number(row.get("reliability") or row.get("reliability2")),
            country=country if len(country) == 2 else "",
            place=place,
            verified=row.get("verification") == "verified",
            rentable=row.get("rentable") is not False and row.get("rented") is not True,
            cpu_arch=str(row.get("cpu_arch") or "amd64"),
            end_date=_number(row.get("end_date")),
            usd_per_hour=_price(row["dph_total"]),
            min_bid_usd=_number(row.get("min_bid")),
            extras=_extras(row),
            down_mbps=_number(row.get("inet_down")),
            dlperf=_number(row.get("dlperf")),
            cluster=_id(row.get("cluster_id")),
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
    extras: ExtraRates
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
        """Read a row. Raises UnreachableError when it cannot be read: it may be ours."""
        try:
            return cls._read(row)
        except _WHAT_A_ROW_RAISES as error:
            raise _unreadable(row) from error

    @classmethod
    def _read(cls, row: Mapping[str, Any]) -> InstanceRow:
        address = _text(row.get("public_ipaddr"))
        direct_port = _host_port(row.get("ports"))
        proxy_host, proxy_port = _text(row.get("ssh_host")), int(_number(row.get("ssh_port")))
        return cls(
            id=str(int(row["id"])),
            label=_text(row.get("label"))[:_LONGEST_LABEL],
            machine_id=_text(row.get("machine_id")),
            actual_status=_text(row.get("actual_status")),
            cur_state=_text(row.get("cur_state")),
            intended_status=_text(row.get("intended_status")),
            status_msg=str(row.get("status_msg") or "")[-_MOST_CHARACTERS:].strip(),
            is_bid=bool(row.get("is_bid")),
            gpu_name=_text(row.get("gpu_name")),
            gpus=int(_number(row.get("num_gpus"))),
            memory_gb=_number(row.get("cpu_ram")) * _number(row.get("gpu_frac") or 1.0) / 1000,
            disk_gb=max(0.0, _number(row.get("disk_space"))),
            cuda=_number(row.get("cuda_max_good")),
            usd_per_hour=_number(row.get("dph_total")),
            extras=_extras(row),
            up_s=_seconds(row.get("uptime_mins")),
            down_gb=_number(row.get("inet_down_billed")),
            up_gb=_number(row.get("inet_up_billed")),
            start_date=_number(row.get("start_date")),
            end_date=_number(row.get("end_date")),
            direct=(address, direct_port) if address and direct_port else None,
            proxy=(proxy_host, proxy_port) if proxy_host and proxy_port else None,
        )


@dataclass(frozen=True, kw_only=True)
class OverlayRow:
    """One overlay network of the account."""

    name: str
    cluster: str
    subnet: str
    """As Vast writes it; empty: not known yet."""

    @classmethod
    def of(cls, row: Any) -> OverlayRow:
        """Read a row. Raises UnreachableError when it cannot be read: it may be ours."""
        try:
            return cls(
                name=_text(row["name"])[:_LONGEST_LABEL],
                cluster=_id(row.get("cluster_id")),
                subnet=_text(row.get("internal_subnet"))[:_LONGEST_LABEL],
            )
        except _WHAT_A_ROW_RAISES as error:
            raise silent("the row of an overlay network cannot be read") from error


def charge_of(row: Any) -> Charge:
    """Read a row of the list of charges. Raises UnreachableError: a bill with a hole is none."""
    try:
        source = re.fullmatch(r"instance-(\d{1,20})", _text(row.get("source")), re.ASCII)
        return Charge(
            instance_id=source[1] if source else "",
            label=_text((row.get("metadata") or {}).get("label"))[:_LONGEST_LABEL],
            usd=_dollars(row["amount"]),
            storage_usd=_sum_of(row, _STORAGE),
            traffic_usd=_sum_of(row, _TRAFFIC),
            until=_number(row.get("end")),
        )
    except _WHAT_A_ROW_RAISES as error:
        raise silent("a charge that cannot be read") from error


def _sum_of(row: Mapping[str, Any], kinds: Collection[str]) -> float:
    return sum(_dollars(item["amount"]) for item in row.get("items") or () if item["type"] in kinds)


def _dollars(value: Any) -> float:
    """A credit is below 0. Raises ValueError for what is no number, or beyond any account."""
    usd = float(value)
    if not abs(usd) <= _MOST_USD:
        raise ValueError(f"{usd} are no dollars of Vast's")
    return usd


def _number(value: Any) -> float:
    """0 where there is none. Raises ValueError for what is no number, or beyond any that Vast has."""
    number = float(value or 0.0)
    if not abs(number) <= _LARGEST:
        raise ValueError(f"{number} is no number of Vast's")
    return number


def _id(value: Any) -> str:
    """A number that names something; empty where there is none. Raises ValueError for what is no number."""
    return "" if value is None else str(int(_number(value)))


def _seconds(minutes: Any) -> float | None:
    """The longest that a rounded number of minutes may stand for."""
    if minutes is None:
        return None
    digits = str(minutes).partition(".")[2]
    return (_number(minutes) + 0.5 * 10.0 ** -len(digits)) * 60


def _price(value: Any) -> float:
    """Nobody lets a machine for nothing: such an offer would be the first to be rented."""
    usd = _number(value)
    if usd <= 0:
        raise ValueError("an offer without a price")
    return usd


def _text(value: Any) -> str:
    return str(value or "")[:_MOST_CHARACTERS].strip()


def _extras(row: Mapping[str, Any]) -> ExtraRates:
    total_usd, gpu_usd = _number(row.get("dph_total")), _number(row.get("dph_base"))
    return ExtraRates(
        storage_usd_per_hour=max(0.0, total_usd - gpu_usd) if gpu_usd else 0.0,
        down_usd_per_gb=_number(row.get("inet_down_cost")),
        up_usd_per_gb=_number(row.get("inet_up_cost")),
    )


def _host_port(ports: Mapping[str, Any] | None) -> int:
    """The port of the host that leads to the container's sshd; 0 while there is none."""
    mapped = (ports or {}).get("22/tcp") or []
    return int(mapped[0]["HostPort"]) if mapped else 0


def _unreadable(row: Any) -> UnreachableError:
    named = row.get("id") if isinstance(row, dict) else None
    return silent(f"the row of instance {named} cannot be read")
