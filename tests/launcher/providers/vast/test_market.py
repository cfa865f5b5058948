"""Searching: what fits a job, and why the rest does not."""

from __future__ import annotations

import pytest

from launcher.core.errors import NoOfferError, ProviderError
from launcher.providers.vast import VastProvider
from tests.emulators.vast import VastEmulator
from tests.launcher.providers.vast.rentals import job


def test_what_vast_does_not_filter_is_filtered_here(vast: VastEmulator, provider: VastProvider) -> None:
    vast.faults.add("filters_ignored")
    offers = provider.search(job(gpu_names=("RTX 4090",), reliability=0.97))
    assert {(offer.gpu_name, offer.gpus) for offer in offers} == {("RTX 4090", 1)}


def test_a_job_that_nothing_fits_is_told_what_each_limit_took(provider: VastProvider) -> None:
    with pytest.raises(NoOfferError, match=r"\d+ offers.*fail gpu_memory_gb \(9999 GB\).*0 left") as caught:
        provider.search(job(gpu_memory_gb=9999))
    assert "relax" in caught.value.hint


def test_an_empty_market_is_no_offer(vast: VastEmulator, provider: VastProvider) -> None:
    vast.faults.add("no_offers", times=2)
    with pytest.raises(NoOfferError, match="0 offers"):
        provider.search(job())


def test_an_offer_that_only_the_market_report_finds_is_taken(
    vast: VastEmulator, provider: VastProvider
) -> None:
    vast.faults.add("no_offers")
    assert provider.search(job())


def test_a_gpu_that_nobody_offers_is_named(provider: VastProvider) -> None:
    with pytest.raises(NoOfferError, match=r"fail gpu_names \(RTX 9999\)"):
        provider.search(job(gpu_names=("RTX 9999",)))


def test_a_market_report_says_what_each_limit_took_and_what_each_offer_would_cost(
    provider: VastProvider,
) -> None:
    seen = provider.market_report(job(gpu_names=("RTX 4090",), reliability=0.97))
    assert seen.offers == sum(constraint.removed for constraint in seen.constraints) + len(seen.quotes)
    assert "reliability" in {constraint.name for constraint in seen.constraints}
    assert [quote.usd for quote in seen.quotes] == sorted(quote.usd for quote in seen.quotes)
    assert {quote.offer.gpu_name for quote in seen.quotes} == {"RTX 4090"}


def test_the_offer_that_is_taken_is_the_first_of_the_market_report(provider: VastProvider) -> None:
    assert provider.market_report(job()).quotes[0].offer.host == provider.search(job())[0].host


def test_a_market_report_of_what_nothing_fits_says_what_to_relax(provider: VastProvider) -> None:
    seen = provider.market_report(job(gpu_names=("RTX 4090",), reliability=1.0))
    assert not seen.quotes
    assert seen.relaxations[0].name == "reliability"


def test_the_daily_quota_of_searches_is_explained(vast: VastEmulator, provider: VastProvider) -> None:
    vast.faults.add("search_quota")
    with pytest.raises(ProviderError, match=r"daily quota .* UTC"):
        provider.search(job())
