"""Records of Vast's rows: offers, overlay networks and charges."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from vastrun.launcher.core import Charge, ExtraRates
from vastrun.launcher.gate import caps
from vastrun.launcher.providers.vast import columns
from vastrun.launcher.providers.vast.errors import no_response_error

_DATACENTER = 1
"""Value of `hosting_type` for a datacenter; 0 is a private host."""
_MACHINE = re.compile(r"instance-(\d{1,20})", re.ASCII)
"""Source of a charge for a machine."""


@dataclass(frozen=True, kw_only=True)
class OfferRow:
    """One offer. Units are in the names; Vast uses MB, Mbit/s and USD."""

    id: str
    machine_id: str
    host_id: str
    """Account of the machine's owner; empty: unknown."""
    address: str
    """Public address; empty: unknown."""
    gpu_name: str
    gpus: int
    gpu_memory_gb: float
    memory_gb: float
    """This offer's share of the machine; 0 when unknown."""
    cpu_cores: float
    """This offer's share of the machine; 0 when unknown."""
    disk_gb: float
    disk_mbps: float
    """MB/s measured by Vast; 0 when unknown."""
    cuda: float
    """Newest CUDA version that the driver supports."""
    compute_cap: int
    gpu_arch: str
    """`nvidia` or `amd`; empty: unknown."""
    nvlink_gbps: float
    """GB/s between its GPUs; 0 without NVLink."""
    reliability: float
    country: str
    """Two letters, or empty."""
    place: str
    verified: bool
    rentable: bool
    cpu_arch: str
    end_date: float
    """End of the host's contract in epoch seconds; 0 when unknown."""
    usd_per_hour: float
    """USD per hour of GPU and storage, on demand or at the lowest bid."""
    min_bid_usd: float
    is_bid: bool
    """True for an offer for bids, whose price is the lowest bid that wins now."""
    extras: ExtraRates
    down_mbps: float
    up_mbps: float
    datacenter: bool
    """True when Vast verified the host as a datacenter."""
    static_ip: bool
    direct_ports: int | None
    """Number of host ports available to the container; None when unknown."""
    dlperf: float
    cluster: str
    """Physical cluster of the machine; empty when it is in none."""

    @property
    def gpu_usd(self) -> float:
        """USD per hour without the disk."""
        return max(0.0, self.usd_per_hour - self.extras.storage_usd_per_hour)

    @classmethod
    def of(cls, row: Any) -> OfferRow | None:
        """Parse a row; None when it is invalid or lacks a required column."""
        try:
            return cls._read(row)
        except columns.ROW_ERRORS:
            return None

    @classmethod
    def fault(cls, row: Any) -> str:
        """Return why a row is invalid; empty when it is valid."""
        try:
            cls._read(row)
        except KeyError as missing:
            return f"no {missing.args[0]}"
        except columns.ROW_ERRORS as error:
            return str(error) or type(error).__name__
        return ""

    @classmethod
    def _read(cls, row: Mapping[str, Any]) -> OfferRow:
        place = columns.text(row.get("geolocation"))
        country = place.rpartition(",")[2].strip()
        reader = columns.ColumnReader(row)
        return cls(
            # The order names the ask: a filter on `id` was seen to match nothing (2026-10).
            id=str(int(row.get("ask_contract_id") or row["id"])),
            machine_id=str(int(row["machine_id"])),
            host_id=reader.read("host_id", columns.id_text),
            address=reader.read("public_ipaddr", columns.site_address),
            gpu_name=columns.gpu_name(row["gpu_name"]),
            gpus=int(columns.number(row["num_gpus"])),
            gpu_memory_gb=columns.number(row["gpu_ram"]) / 1000,
            # The share of the slice in MB already: proportional to its GPUs in all 298 machines of a market.
            memory_gb=reader.read("cpu_ram", columns.number) / 1000,
            cpu_cores=reader.read("cpu_cores_effective", columns.number),
            disk_gb=columns.number(row["disk_space"]),
            disk_mbps=reader.read("disk_bw", columns.number),
            cuda=reader.read("cuda_max_good", columns.cuda),
            compute_cap=reader.read("compute_cap", columns.whole),
            gpu_arch=reader.read("gpu_arch", columns.text).lower(),
            nvlink_gbps=reader.read("bw_nvlink", columns.number),
            reliability=reader.read("reliability", columns.number)
            or reader.read("reliability2", columns.number),
            country=country if len(country) == 2 else "",
            place=place,
            verified=row.get("verification") == "verified",
            rentable=row.get("rentable") is not False and row.get("rented") is not True,
            cpu_arch=reader.read("cpu_arch", columns.cpu_architecture),
            end_date=columns.number(row.get("end_date")),
            usd_per_hour=columns.price(row["dph_total"]),
            min_bid_usd=columns.number(row.get("min_bid")),
            # Unknown counts as a bid: read as on demand, its lowest bid would pass for the whole price.
            is_bid=row.get("is_bid") is not False,
            extras=_extras(row),
            down_mbps=reader.read("inet_down", columns.number),
            up_mbps=reader.read("inet_up", columns.number),
            datacenter=reader.read("hosting_type", columns.number) == _DATACENTER,
            static_ip=reader.read("static_ip", columns.flag),
            direct_ports=reader.read("direct_port_count", columns.whole_or_unknown),
            dlperf=reader.read("dlperf", columns.number),
            cluster=columns.id_text(row.get("cluster_id")),
        )


@dataclass(frozen=True, kw_only=True)
class OverlayRow:
    """One overlay network of the account."""

    name: str
    cluster: str
    subnet: str
    """Subnet in CIDR notation; empty while unknown."""

    @classmethod
    def of(cls, row: Any) -> OverlayRow:
        """Parse a row. Raises UnreachableError for an invalid one, which may be this ledger's."""
        try:
            return cls(
                name=columns.text(row["name"])[: caps.LABEL_CHARACTERS],
                cluster=columns.id_text(row.get("cluster_id")),
                subnet=columns.text(row.get("internal_subnet"))[: caps.LABEL_CHARACTERS],
            )
        except columns.ROW_ERRORS as error:
            raise no_response_error("the row of an overlay network cannot be read") from error


def parse_charge(row: Any) -> Charge:
    """Parse a charge; one without a valid amount says so.

    Raises UnreachableError where it may be of any machine: an incomplete bill must not be used.
    """
    reader = columns.ColumnReader(row if isinstance(row, Mapping) else {})
    source = reader.read("source", columns.text)[: caps.LABEL_CHARACTERS]
    machine, usd = _MACHINE.fullmatch(source), reader.read("amount", _dollars)
    if usd is None and not source:
        raise no_response_error("a charge that cannot be read")
    items = reader.read("items", _usd_by_type)
    # Vast bills by UTC days, and names the first and the last one by their midnight.
    last_day = reader.read("end", columns.number)
    return Charge(
        instance_id=machine[1] if machine else "",
        source="" if machine else source,
        label=reader.read(
            "metadata", lambda metadata: columns.text((metadata or {}).get("label"))[: caps.LABEL_CHARACTERS]
        ),
        usd=usd or 0.0,
        is_readable=usd is not None,
        storage_usd=items["disk"],
        traffic_usd=items["bwd"] + items["bwu"],
        until=last_day + 86_400.0 if last_day else 0.0,
    )


def _usd_by_type(items: Any) -> Mapping[str, float]:
    """Return the sums of a charge's items by type; what is no item counts for nothing."""
    found: dict[str, float] = defaultdict(float)
    for item in items or ():
        with suppress(*columns.ROW_ERRORS):
            found[columns.text(item["type"])] += _dollars(item["amount"]) or 0.0
    return found


def _dollars(value: Any) -> float | None:
    """Parse an amount in USD; credits are negative. Raises ValueError when it is out of range."""
    if value is None:
        return None
    usd = float(value)
    if not abs(usd) <= caps.VAST_USD:
        raise ValueError(f"{usd} is not a valid amount in USD")
    return usd


def _extras(row: Mapping[str, Any]) -> ExtraRates:
    total_usd, gpu_usd = columns.number(row.get("dph_total")), columns.number(row.get("dph_base"))
    return ExtraRates(
        storage_usd_per_hour=max(0.0, total_usd - gpu_usd) if gpu_usd else 0.0,
        down_usd_per_gb=columns.number(row.get("inet_down_cost")),
        up_usd_per_gb=columns.number(row.get("inet_up_cost")),
    )
