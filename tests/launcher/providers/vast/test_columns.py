"""Columns of Vast's rows are read up to their exact limits, and each field of an offer from its column."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.launcher.providers.vast.rows import LOCK, NOW
from tests.launcher.providers.vast.test_offers import job
from vastrun.launcher.core import ExtraRates, Offer
from vastrun.launcher.core.job import Limits
from vastrun.launcher.providers.vast import columns
from vastrun.launcher.providers.vast.instance_row import id_of
from vastrun.launcher.providers.vast.offers import make_offer
from vastrun.launcher.providers.vast.rows import OfferRow


@pytest.mark.parametrize(
    ("read", "given", "found"),
    [
        (columns.number, None, 0.0),
        (columns.number, "1.5", 1.5),
        (columns.number, 1e12, 1e12),
        (columns.number, -1e12, -1e12),
        (columns.whole, 7.9, 7),
        (columns.whole_or_unknown, None, None),
        (columns.whole_or_unknown, 0, 0),
        (columns.id_text, None, ""),
        (columns.id_text, 0, "0"),
        (columns.id_text, 7.0, "7"),
        (columns.site_address, None, ""),
        (columns.site_address, "45.3.2.1\n", "45.3.2.1"),
        (columns.site_address, "2A01:04f8::1", "2a01:4f8::1"),
        (columns.site_address, "127.0.0.2", "127.0.0.2"),
        (columns.site_address, "10.0.0.7", ""),
        (columns.site_address, "100.64.0.1", ""),
        (columns.site_address, "0.0.0.0", ""),
        (columns.price, 0.001, 0.001),
        (columns.port, None, 0),
        (columns.port, 65535, 65535),
        (columns.cuda, 12.8, 12.8),
        (columns.cuda, 99.9, 99.9),
        (columns.cuda, 100.0, 0.0),
        (columns.cuda, -1, 0.0),
        (columns.flag, True, True),
        (columns.flag, False, False),
        (columns.flag, None, False),
        (columns.text, None, ""),
        (columns.text, "  " + 4000 * "x", 3998 * "x"),
        (columns.end_of_text, 4000 * "x" + "  ", 3998 * "x"),
        (columns.gpu_name, "RTX_PRO_6000", "RTX PRO 6000"),
        (columns.cpu_architecture, None, "amd64"),
        (columns.cpu_architecture, "X86_64", "amd64"),
        (columns.cpu_architecture, "aarch64", "arm64"),
        (columns.cpu_architecture, "riscv64", "riscv64"),
        (columns.billed_gb, None, 0.0),
        (columns.billed_gb, 1782579.2, 1.7),
        (columns.seconds, None, None),
        (columns.seconds, -60, None),
        (columns.seconds, "-0.5", None),
        (columns.seconds, 2, 150.0),
        (columns.seconds, 2.5, 153.0),
        (columns.seconds, "2.25", 135.3),
    ],
)
def test_a_value_is_read(read: Callable[[Any], Any], given: object, found: object) -> None:
    assert read(given) == (pytest.approx(found) if isinstance(found, float) else found)
    assert type(read(given)) is type(found)


@pytest.mark.parametrize(
    ("read", "given"),
    [
        (columns.number, 1.001e12),
        (columns.number, -1.001e12),
        (columns.number, float("nan")),
        (columns.whole, float("inf")),
        (columns.price, 0),
        (columns.price, -0.1),
        (columns.port, 65536),
        (columns.port, -1),
        (columns.flag, "true"),
        (columns.site_address, "45.3.2.1 or 1=1"),
        (columns.site_address, 4000 * "9"),
    ],
)
def test_a_value_out_of_range_is_refused(read: Callable[[Any], Any], given: object) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read(given)


@pytest.mark.parametrize(
    ("given", "found"),
    [(1, "1"), ("7", "7"), (0, None), (-1, None), (10**12 - 1, "999999999999"), (10**12, None)],
)
def test_instance_is_known_by_a_positive_id_within_vast_s_numbers(given: object, found: str | None) -> None:
    assert id_of({"id": given}) == found


FULL: dict[str, Any] = {
    "ask_contract_id": 71,
    "id": 70,
    "machine_id": 41234,
    "host_id": 88123,
    "public_ipaddr": "45.3.2.1",
    "gpu_name": "RTX_4090",
    "num_gpus": 2,
    "gpu_ram": 24564,
    "cpu_ram": 257_812,
    "cpu_cores_effective": 32.5,
    "cpu_arch": "x86_64",
    "disk_space": 812.4,
    "disk_bw": 2100.5,
    "cuda_max_good": 13.0,
    "compute_cap": 890,
    "gpu_arch": "NVIDIA",
    "bw_nvlink": 300.0,
    "reliability": 0.9971,
    "reliability2": 0.5,
    "geolocation": "Texas, US",
    "verification": "verified",
    "rentable": True,
    "rented": False,
    "end_date": NOW,
    "dph_base": 0.25,
    "dph_total": 0.5,
    "min_bid": 0.2,
    "is_bid": False,
    "inet_down_cost": 0.002,
    "inet_up_cost": 0.003,
    "inet_down": 934.1,
    "inet_up": 812.5,
    "hosting_type": 1,
    "static_ip": True,
    "direct_port_count": 99,
    "dlperf": 98.2,
    "cluster_id": 7,
}
READ = OfferRow(
    id="71",
    machine_id="41234",
    host_id="88123",
    address="45.3.2.1",
    gpu_name="RTX 4090",
    gpus=2,
    gpu_memory_gb=24.564,
    memory_gb=257.812,
    cpu_cores=32.5,
    disk_gb=812.4,
    disk_mbps=2100.5,
    cuda=13.0,
    compute_cap=890,
    gpu_arch="nvidia",
    nvlink_gbps=300.0,
    reliability=0.9971,
    country="US",
    place="Texas, US",
    verified=True,
    rentable=True,
    cpu_arch="amd64",
    end_date=NOW,
    usd_per_hour=0.5,
    min_bid_usd=0.2,
    is_bid=False,
    extras=ExtraRates(storage_usd_per_hour=0.25, down_usd_per_gb=0.002, up_usd_per_gb=0.003),
    down_mbps=934.1,
    up_mbps=812.5,
    datacenter=True,
    static_ip=True,
    direct_ports=99,
    dlperf=98.2,
    cluster="7",
)
UNKNOWN: dict[str, dict[str, Any]] = {
    "ask_contract_id": {"id": "70"},
    "host_id": {"host_id": ""},
    "public_ipaddr": {"address": ""},
    "cpu_ram": {"memory_gb": 0.0},
    "cpu_cores_effective": {"cpu_cores": 0.0},
    "cpu_arch": {"cpu_arch": "amd64"},
    "disk_bw": {"disk_mbps": 0.0},
    "cuda_max_good": {"cuda": 0.0},
    "compute_cap": {"compute_cap": 0},
    "gpu_arch": {"gpu_arch": ""},
    "bw_nvlink": {"nvlink_gbps": 0.0},
    "reliability": {"reliability": 0.5},
    "reliability2": {},
    "geolocation": {"country": "", "place": ""},
    "verification": {"verified": False},
    "rentable": {},
    "rented": {},
    "end_date": {"end_date": 0.0},
    "dph_base": {"extras": replace(READ.extras, storage_usd_per_hour=0.0)},
    "min_bid": {"min_bid_usd": 0.0},
    "is_bid": {"is_bid": True},
    "inet_down_cost": {"extras": replace(READ.extras, down_usd_per_gb=0.0)},
    "inet_up_cost": {"extras": replace(READ.extras, up_usd_per_gb=0.0)},
    "inet_down": {"down_mbps": 0.0},
    "inet_up": {"up_mbps": 0.0},
    "hosting_type": {"datacenter": False},
    "static_ip": {"static_ip": False},
    "direct_port_count": {"direct_ports": None},
    "dlperf": {"dlperf": 0.0},
    "cluster_id": {"cluster": ""},
}
"""What each optional column leaves unknown where it is missing; all others are required."""


def test_each_field_of_an_offer_comes_from_its_column() -> None:
    assert OfferRow.of(FULL) == READ
    assert OfferRow.fault(FULL) == ""
    assert READ.gpu_usd == 0.25
    assert replace(READ, usd_per_hour=0.2).gpu_usd == 0.0


@pytest.mark.parametrize("column", FULL)
def test_a_column_that_is_missing_leaves_its_field_unknown_or_the_offer_out(column: str) -> None:
    row = {name: value for name, value in FULL.items() if name != column}
    if column in UNKNOWN:
        assert OfferRow.of(row) == replace(READ, **UNKNOWN[column])
    elif column == "id":
        assert OfferRow.of(row) == READ
    else:
        assert OfferRow.of(row) is None
        assert OfferRow.fault(row) == f"no {column}"


def test_each_field_of_what_is_rented_comes_from_the_row() -> None:
    made = make_offer(READ, job(gpus=2), LOCK)
    assert made is not None
    assert made == Offer(
        id="71",
        host="41234",
        host_account="88123",
        address="45.3.2.1",
        gpu_name="RTX 4090",
        gpus=2,
        gpu_memory_gb=24.564,
        disk_gb=812.4,
        usd_per_hour=0.5,
        description="2 x RTX 4090 25 GB, Texas, US, reliability 99.7%, 934 Mbit/s, machine 41234",
        extras=READ.extras,
        image=LOCK.images["cu130"].reference,
        image_whole=LOCK.images["cu130"].whole,
        cuda=13.0,
    )


def test_what_is_rented_depends_on_the_job_too() -> None:
    bid = replace(READ, is_bid=True, place="")
    spec = job(gpus=2, interruptible=True, limits=Limits(usd_per_hour=0.5), image="me/mine")
    made = make_offer(bid, replace(spec, nodes=2), LOCK)
    assert made is not None
    assert (made.network, made.image, made.image_whole) == ("7", "me/mine", False)
    assert (made.bid_usd_per_hour, made.usd_per_hour) == (0.24, pytest.approx(0.49))
    assert made.description.startswith("2 x RTX 4090 25 GB, somewhere, ")
    on_demand = make_offer(READ, spec, LOCK)
    assert on_demand is not None
    assert (on_demand.bid_usd_per_hour, on_demand.network) == (None, "")
    assert on_demand.description.endswith("machine 41234, on demand: a bid is expected to cost more")
    assert make_offer(replace(READ, usd_per_hour=0.51), spec, LOCK) is None
