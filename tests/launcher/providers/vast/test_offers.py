"""Every hard limit holds whatever Vast sends, and the funnel says what each of them took."""

from dataclasses import replace
from typing import Any

import pytest

from tests.jobs import train_job
from tests.launcher.providers.vast.rows import DAY_S, LOCK, NOW, offer, offer_row
from vastrun.launcher.core.job import JobSpec, Limits, Resources
from vastrun.launcher.providers.vast.funnel import funnel
from vastrun.launcher.providers.vast.offers import make_offer, query
from vastrun.launcher.providers.vast.rows import OfferRow

NO_OPTIONS = ("gpu_arch", "verification", "direct_ports")
"""Limits that no job file can relax."""


def job(*, limits: Limits | None = None, image: str | None = None, **resources: Any) -> JobSpec:
    return train_job(resources=Resources(**resources), limits=limits or Limits(), image=image)


IMAGE = "image (vastrun's images need CUDA 12.6, or 13.0 on Blackwell)"
VERIFIED = "verification (verified and free)"
A_DAY, HOURS = job(limits=Limits(hours=24)), "hours (24 h before the host wants it back)"


@pytest.mark.parametrize(
    ("spec", "good", "bad", "fails"),
    [
        (job(gpus=2), {"num_gpus": 2}, {"num_gpus": 4}, "gpus (2 GPUs)"),
        (
            job(gpu_names=("RTX 4090",)),
            {"gpu_name": "RTX 4090"},
            {"gpu_name": "RTX 4090 D"},
            "gpu_names (RTX 4090; the market has RTX 4090 D)",
        ),
        (job(gpu_memory_gb=24), {"gpu_ram": 24564}, {"gpu_ram": 22500}, "gpu_memory_gb (24 GB)"),
        (
            job(memory_gb=64),
            {"cpu_ram": 64485, "gpu_frac": 0.125},
            {"cpu_ram": 63999, "gpu_frac": 1.0},
            "memory_gb (64 GB)",
        ),
        (job(disk_gb=100), {"disk_space": 100.0}, {"disk_space": 99.9}, "disk_gb (100 GB)"),
        (job(cuda=12.8, image="x"), {"cuda_max_good": 12.8}, {"cuda_max_good": 12.6}, "cuda (12.8)"),
        (job(), {"cuda_max_good": 12.6}, {"cuda_max_good": 12.4}, IMAGE),
        (
            job(),
            {"cuda_max_good": 13.0, "compute_cap": 1200},
            {"cuda_max_good": 12.8, "compute_cap": 1200},
            IMAGE,
        ),
        (job(), {"cpu_arch": "amd64"}, {"cpu_arch": "arm64"}, IMAGE),
        (job(reliability=0.99), {"reliability": 0.99}, {"reliability": 0.9899}, "reliability (0.99)"),
        (
            job(regions=("US", "DE")),
            {"geolocation": "Bavaria, DE"},
            {"geolocation": "Quebec, CA"},
            "regions (US or DE)",
        ),
        (job(), {"verification": "verified"}, {"verification": "unverified"}, VERIFIED),
        (job(), {"rentable": True}, {"rentable": False}, VERIFIED),
        (job(), {"rented": False}, {"rented": True}, VERIFIED),
        (job(gpus=2, nvlink=True), {"bw_nvlink": 300.0}, {"bw_nvlink": 0.0}, "nvlink (NVLink)"),
        (
            job(cpu_cores=8),
            {"cpu_cores_effective": 8.0},
            {"cpu_cores_effective": 7.5, "cpu_cores": 64},
            "cpu_cores (8 cores)",
        ),
        (job(disk_mbps=1000), {"disk_bw": 1000.0}, {"disk_bw": 999.0}, "disk_mbps (1000 MB/s)"),
        (job(up_mbps=100), {"inet_up": 100.0}, {"inet_up": 99.9}, "up_mbps (100 Mbit/s)"),
        (job(down_mbps=900), {"inet_down": 900.0}, {"inet_down": 899.9}, "down_mbps (900 Mbit/s)"),
        (job(datacenter=True), {"hosting_type": 1}, {"hosting_type": 0}, "datacenter (hosts of datacenters)"),
        (job(static_ip=True), {"static_ip": True}, {"static_ip": False}, "static_ip (a fixed address)"),
        (job(), {"direct_port_count": 1}, {"direct_port_count": 0}, "direct_ports (1 for SSH)"),
        (job(), {"direct_port_count": None}, {"direct_port_count": -1}, "direct_ports (1 for SSH)"),
        (job(image="x"), {"gpu_arch": None}, {"gpu_arch": "amd"}, "gpu_arch (NVIDIA)"),
        (
            job(limits=Limits(usd_per_hour=0.41)),
            {"dph_total": 0.41},
            {"dph_total": 0.42},
            "usd_per_hour ($0.41)",
        ),
        (A_DAY, {"end_date": NOW + 2 * DAY_S}, {"end_date": NOW + DAY_S}, HOURS),
        (A_DAY, {"end_date": NOW + DAY_S + 3600}, {"end_date": NOW + DAY_S + 3599}, HOURS),
        (A_DAY, {"end_date": None}, {"end_date": 1}, HOURS),
        (job(gpus=0, image="x"), {"num_gpus": 1, "gpu_arch": "amd"}, {"num_gpus": 2}, "gpus (1 GPU)"),
        (replace(job(), nodes=2), {"cluster_id": 7}, {"cluster_id": None}, "nodes (in a cluster)"),
    ],
)
def test_a_row_passes_only_when_it_holds_the_limit(
    spec: JobSpec, good: dict[str, Any], bad: dict[str, Any], fails: str
) -> None:
    base = {"num_gpus": spec.resources.gpus}
    assert funnel([offer(**(base | good))], spec, LOCK, NOW).left
    seen = funnel([offer(**(base | bad))], spec, LOCK, NOW)
    name = fails.partition(" ")[0]
    advice = "" if name in NO_OPTIONS else f"; relax {name} to get 1"
    assert str(seen) == f"1 offers, 1 fail {fails}, 0 left{advice}"
    assert [(limit.name, limit.removed) for limit in seen.removed] == [(name, 1)]
    assert seen.strictest == seen.removed[0]


def test_a_limit_on_money_shortens_how_long_the_machine_must_be_ours() -> None:
    spec = job(limits=Limits(hours=48, usd=0.82))
    assert funnel([offer(dph_total=0.41, end_date=NOW + 4 * 3600)], spec, LOCK, NOW).left


@pytest.mark.parametrize("row", [None, {}, "text", offer(dph_total=None), offer(num_gpus="many")])
def test_a_row_that_cannot_be_read_is_no_offer(row: Any) -> None:
    seen = funnel([row, offer()], job(), LOCK, NOW)
    assert (len(seen.left), seen.unreadable) == (1, 1)


def test_the_funnel_says_what_each_limit_took_and_what_relaxing_one_would_give() -> None:
    spec = job(gpu_names=("RTX 4090",), reliability=0.99)
    rows = [
        offer(),
        offer(gpu_name="RTX 3090"),
        offer(gpu_name="RTX 3090", reliability=0.9),
        offer(reliability=0.95),
        offer(reliability=0.96),
    ]
    assert str(funnel(rows, spec, LOCK, NOW)) == (
        "5 offers, 2 fail gpu_names (RTX 4090), 2 fail reliability (0.99), 1 left; "
        "relax reliability to get 3 or gpu_names to get 2"
    )


def test_the_query_asks_for_every_limit_in_vast_s_own_units() -> None:
    limits = Limits(hours=10, usd_per_hour=0.5)
    spec = job(limits=limits, gpus=2, gpu_names=("H100 SXM",), gpu_memory_gb=80, cuda=12.8, regions=("de",))
    asked = query(spec, bid=False)
    assert asked["num_gpus"] == {"eq": 2}
    assert asked["gpu_name"] == {"in": ["H100 SXM", "H100_SXM"]}
    assert asked["gpu_ram"] == {"gte": 76_000}
    assert asked["cuda_max_good"] == {"gte": 12.8}
    assert "gte" in asked["compute_cap"]
    assert asked["direct_port_count"] == {"gte": 1}
    assert "cluster_id" not in asked
    assert asked["geolocation"] == {"in": ["DE"]}
    assert asked["duration"] == {"gte": 11 * 3600}
    assert asked["dph_total"] == {"lte": 0.5}


def test_what_a_job_asks_for_besides_is_asked_for_in_vast_s_own_columns() -> None:
    spec = job(gpus=2, nvlink=True, cpu_cores=16, disk_mbps=500, up_mbps=100, datacenter=True, static_ip=True)
    assert (
        query(spec, bid=False).items()
        >= {
            "bw_nvlink": {"gt": 0},
            "cpu_cores_effective": {"gte": 16},
            "disk_bw": {"gte": 500},
            "inet_up": {"gte": 100},
            "datacenter": {"eq": True},
            "static_ip": {"eq": True},
        }.items()
    )


def test_nothing_is_asked_for_that_the_job_does_not_need() -> None:
    expected = {"verified", "external", "rentable", "rented", "num_gpus", "disk_space", "reliability"}
    assert query(job(), bid=False).keys() == expected | {"direct_port_count", "duration"}


def test_several_nodes_ask_for_offers_of_a_cluster() -> None:
    spec = replace(job(), nodes=2)
    assert query(spec, bid=False)["cluster_id"] == {"neq": None}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("direct_port_count", "many"),
        ("cpu_ram", None),
        ("reliability", {}),
        ("inet_up", float("nan")),
        ("hosting_type", "home"),
        ("static_ip", "maybe"),
        ("gpu_arch", None),
        ("cpu_arch", 1e300),
    ],
)
def test_an_odd_value_of_an_optional_column_hides_no_offer(column: str, value: object) -> None:
    assert OfferRow.of(offer(**{column: value})) is not None


def test_an_odd_value_of_a_column_does_not_meet_a_limit_on_it() -> None:
    row = offer(bw_nvlink="fast", static_ip="true", num_gpus=2)
    assert not funnel([row], job(gpus=2, nvlink=True), LOCK, NOW).left
    assert not funnel([row], job(gpus=2, static_ip=True), LOCK, NOW).left


PINNED = f"@sha256:{64 * 'a'}"


@pytest.mark.parametrize(
    ("image", "changes", "runs"),
    [
        ("me/mine" + PINNED, {"cuda_max_good": 11.0, "compute_cap": 1200}, True),
        ("me/mine:cuda12.8" + PINNED, {"cuda_max_good": 12.8, "compute_cap": 1200}, True),
        ("me/mine:cuda12.8" + PINNED, {"cuda_max_good": 12.4}, False),
        ("me/mine:cuda12.8" + PINNED, {"cuda_max_good": None}, True),
        ("me/mine:cu124" + PINNED, {"cuda_max_good": 13.0, "compute_cap": 1200}, False),
        ("me/mine:cu124" + PINNED, {"cuda_max_good": 13.0, "compute_cap": None}, True),
        ("me/mine:cu124" + PINNED, {"cuda_max_good": 580.2}, True),
        ("me/mine:cu130" + PINNED, {"cuda_max_good": 13.0, "compute_cap": 700}, False),
        ("me/mine" + PINNED, {"cpu_arch": "arm64"}, False),
        ("me/mine:1-arm64" + PINNED, {"cpu_arch": "aarch64"}, True),
        ("me/mine:1-arm64" + PINNED, {"cpu_arch": "amd64"}, False),
        ("me/mine" + PINNED, {"cpu_arch": None}, True),
        (LOCK.images["cu126"].reference, {"cuda_max_good": 12.4}, False),
    ],
)
def test_a_job_s_own_image_is_rented_with_where_it_is_not_known_to_fail(
    image: str, changes: dict[str, Any], runs: bool
) -> None:
    assert bool(funnel([offer(**changes)], job(image=image), LOCK, NOW).left) is runs


def test_who_asks_for_gpus_of_another_architecture_has_an_image_for_it() -> None:
    row = offer(gpu_name="GH200 SXM", cpu_arch="arm64", compute_cap=900)
    assert funnel([row], job(image="me/mine" + PINNED, gpu_names=("GH200_SXM",)), LOCK, NOW).left


def test_the_funnel_does_not_advise_to_relax_what_no_job_file_has() -> None:
    rows = [offer(), offer(direct_port_count=0), offer(verification="unverified"), offer(gpu_arch="amd")]
    seen = funnel(rows, job(image="x"), LOCK, NOW)
    assert [limit.name for limit in seen.removed] == ["gpu_arch", "verification", "direct_ports"]
    assert seen.relaxed == ()


@pytest.mark.parametrize(
    ("cap", "on_demand_usd", "bid"),
    [(None, None, 0.30), (0.28, None, 0.27), (0.265, None, None), (None, 0.27, 0.27), (None, 0.26, None)],
    ids=[
        "above the floor by a margin",
        "with its disk within the limit",
        "so close to the floor that it would be lost at once",
        "no more than on demand",
        "on demand so close to the floor",
    ],
)
def test_a_bid_is_above_the_floor_and_within_every_limit_or_is_not_made(
    cap: float | None, on_demand_usd: float | None, bid: float | None
) -> None:
    row = offer_row(min_bid=0.25, dph_base=0.25, dph_total=0.26)
    spec = job(interruptible=True, limits=Limits(usd_per_hour=cap))
    found = make_offer(row, spec, LOCK, on_demand_usd=on_demand_usd)
    assert (None if found is None else found.bid_usd_per_hour) == pytest.approx(bid, abs=1e-4)
    if found is not None:
        assert found.usd_per_hour == pytest.approx((bid or 0.0) + 0.01, abs=1e-4)
        assert found.usd_per_hour <= (cap or 1.0)
