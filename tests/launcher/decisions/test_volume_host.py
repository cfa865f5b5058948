"""When a machine with a data volume is taken instead of a cheaper one."""

from __future__ import annotations

import pytest

from vastrun.launcher.core import ExtraRates, Offer
from vastrun.launcher.decisions.volume_host import download_usd, prefer_host


def offer(host: str, usd_per_hour: float, *, expected_usd: float = 0.0, down_usd: float = 0.0) -> Offer:
    return Offer(
        id=f"offer of {host}",
        host=host,
        gpu_name="RTX 4090",
        gpus=1,
        gpu_memory_gb=24.0,
        disk_gb=100.0,
        usd_per_hour=usd_per_hour,
        description="",
        expected_usd=expected_usd,
        extras=ExtraRates(down_usd_per_gb=down_usd),
    )


def test_a_download_costs_its_traffic_and_the_machine_meanwhile() -> None:
    # 225 GB at 500 Mbit/s take an hour.
    assert download_usd(offer("a", 0.4, down_usd=0.002), 225) == pytest.approx(0.4 + 225 * 0.002)


@pytest.mark.parametrize(
    ("kept", "first"),
    [
        (offer("b", 0.5, expected_usd=4.3), "b"),
        (offer("b", 0.5, expected_usd=4.5), "a"),
        (offer("b", 0.7), "b"),
        (offer("b", 0.9), "a"),
    ],
)
def test_the_machine_with_the_volume_is_first_where_it_costs_no_more_than_the_download(
    kept: Offer, first: str
) -> None:
    offers = prefer_host([offer("a", 0.4, expected_usd=4.0), kept, offer("c", 2.0)], "b", 225)
    assert [one.host for one in offers] == (["b", "a", "c"] if first == "b" else ["a", "b", "c"])


def test_a_machine_that_is_not_offered_changes_nothing() -> None:
    offers = [offer("a", 0.4), offer("c", 2.0)]
    assert prefer_host(offers, "b", 225) == offers
    assert prefer_host([], "b", 225) == []
