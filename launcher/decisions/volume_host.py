"""Choice between a machine with the job's data volume and a cheaper one without it."""

from __future__ import annotations

from vastrun.launcher.core import Offer

DOWNLOAD_MBPS = 500.0
"""Download speed, in Mbit/s, by which the time to fetch a volume's data again is estimated."""


def prefer_host(offers: list[Offer], host: str, gb: float) -> list[Offer]:
    """Put the best offer of `host` first where it costs no more than the best one and `gb` of downloads."""
    with_volume = next((offer for offer in offers if offer.host == host), None)
    if with_volume is None or _extra_usd(with_volume, offers[0]) > download_usd(offers[0], gb):
        return offers
    return [with_volume, *(offer for offer in offers if offer is not with_volume)]


def download_usd(offer: Offer, gb: float) -> float:
    """Return the cost of downloading `gb` on a machine: its traffic, and its price meanwhile."""
    hours = gb * 8000 / DOWNLOAD_MBPS / 3600
    return gb * offer.extras.down_usd_per_gb + hours * offer.usd_per_hour


def _extra_usd(with_volume: Offer, best: Offer) -> float:
    """Return by how much the job costs more there; by the hour where its length is not known."""
    if with_volume.expected_usd and best.expected_usd:
        return with_volume.expected_usd - best.expected_usd
    return with_volume.usd_per_hour - best.usd_per_hour
