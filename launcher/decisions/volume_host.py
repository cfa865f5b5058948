"""Whether a machine that has a job's data volume is worth more than a cheaper one without it."""

from __future__ import annotations

from launcher.core import Offer

DOWNLOAD_MBPS = 500.0
"""Download speed, in Mbit/s, by which the time to fetch a volume's data again is estimated."""


def prefer_host(offers: list[Offer], host: str, gb: float) -> list[Offer]:
    """Put the best offer of `host` first where it costs no more than the best one and `gb` of downloads."""
    kept = next((offer for offer in offers if offer.host == host), None)
    if kept is None or _extra_usd(kept, offers[0]) > download_usd(offers[0], gb):
        return offers
    return [kept, *(offer for offer in offers if offer is not kept)]


def download_usd(offer: Offer, gb: float) -> float:
    """Return what it costs to fetch so many GB on a machine: its traffic, and its price meanwhile."""
    hours = gb * 8000 / DOWNLOAD_MBPS / 3600
    return gb * offer.extras.down_usd_per_gb + hours * offer.usd_per_hour


def _extra_usd(kept: Offer, best: Offer) -> float:
    """Return by how much the job costs more there; by the hour where its length is not known."""
    if kept.expected_usd and best.expected_usd:
        return kept.expected_usd - best.expected_usd
    return kept.usd_per_hour - best.usd_per_hour
