"""Searching: what fits a job, and why the rest does not."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.emulators.machines import Machine
from tests.emulators.vast import VastEmulator
from tests.fakes import FakeClock
from tests.launcher.providers.vast.rentals import job, open_market
from vastrun.launcher.core import Offer
from vastrun.launcher.core.errors import NoOfferError, ProviderError
from vastrun.launcher.core.job import Limits
from vastrun.launcher.decisions.history import AvoidedHosts, SpeedHistory
from vastrun.launcher.flow.rental import choose_offers
from vastrun.launcher.providers.vast import VastProvider
from vastrun.launcher.providers.vast.offers import query


def test_what_vast_does_not_filter_is_filtered_here(vast: VastEmulator, provider: VastProvider) -> None:
    vast.faults.add("filters_ignored")
    offers = provider.search(job(gpu_names=("RTX 4090",), reliability=0.97))
    assert {(offer.gpu_name, offer.gpus) for offer in offers} == {("RTX 4090", 1)}


def test_a_job_that_nothing_fits_is_told_what_each_limit_took(provider: VastProvider) -> None:
    with pytest.raises(NoOfferError, match=r"\d+ offers.*fail gpu_memory_gb \(9999 GB\).*0 left") as caught:
        provider.search(job(gpu_memory_gb=9999))
    assert "relax" in caught.value.hint


NOW = 1_800_000_000.0
LIMITED = replace(job(), limits=Limits(hours=1.0, usd=3.0))


def avoiding(vast: VastEmulator, folder: Path, avoid: AvoidedHosts) -> VastProvider:
    """The provider of a launcher whose ledger says what to avoid."""
    return open_market(vast, folder, FakeClock(NOW), recall=lambda _: SpeedHistory(avoid=avoid))


def many(count: int) -> list[Machine]:
    """Machines with one GPU, the dearest of which alone is in Norway."""
    places = {count - 1: "Oslo, NO"}
    return [
        Machine(id=41000 + n, gpu_usd=0.3 + n * 0.001, geolocation=places.get(n, "Texas, US"))
        for n in range(count)
    ]


@pytest.mark.parametrize("capped", [False, True])
def test_the_dearest_of_many_offers_is_found(tmp_path: Path, capped: bool) -> None:
    with VastEmulator(many(200), rate_limits=False) as vast:
        vast.faults.add("filters_ignored", times=99)
        if capped:
            vast.faults.add("search_capped", times=99)
        spec = job(regions=("NO",))
        # Vast applies no filter, so that each search of a capped market begins with the cheapest offers anew.
        if capped:
            with pytest.raises(NoOfferError, match=r"the 64 cheapest offers.* 64 fail regions \(NO\)"):
                open_market(vast, tmp_path).search(spec)
            vast.faults.clear()
            vast.faults.add("search_capped", times=99)
        assert [offer.host for offer in open_market(vast, tmp_path).search(spec)] == ["41199"]


def test_a_market_that_is_listed_64_offers_at_a_time_is_read_by_price(tmp_path: Path) -> None:
    with VastEmulator(many(200), rate_limits=False) as vast:
        vast.faults.add("search_capped", times=99)
        seen = open_market(vast, tmp_path).market_report(job())
        assert (seen.offers, seen.truncated, len(seen.quotes), seen.beyond) == (200, False, 64, 136)
    with VastEmulator(many(400), rate_limits=False) as vast:
        vast.faults.add("search_capped", times=99)
        seen = open_market(vast, tmp_path).market_report(job())
        assert (seen.offers, seen.truncated, len(seen.quotes), seen.beyond) == (253, True, 64, 189)


def test_a_market_of_many_offers_is_read_in_one_search(tmp_path: Path) -> None:
    with VastEmulator(many(400), rate_limits=False) as vast:
        seen = open_market(vast, tmp_path).market_report(job())
        assert (seen.offers, seen.truncated, len(seen.quotes), seen.beyond) == (400, False, 400, 0)


def test_hopper_is_found_by_a_job_that_names_a_cuda_version(tmp_path: Path) -> None:
    with VastEmulator([Machine(id=1, gpu_name="H100 SXM", compute_cap=900)], rate_limits=False) as vast:
        vast.faults.add("cuda_alone", times=99)
        assert open_market(vast, tmp_path).search(job(cuda=12.8, gpu_names=("H100 SXM",)))
        assert vast.faults.struck == []


@pytest.mark.parametrize("name", ["RTX 4090", "RTX_4090"])
@pytest.mark.parametrize("underscored", [False, True])
def test_a_gpu_is_found_by_its_name_with_and_without_underscores(
    vast: VastEmulator, provider: VastProvider, name: str, underscored: bool
) -> None:
    if underscored:
        vast.faults.add("names_underscored", times=99)
    assert {offer.gpu_name for offer in provider.search(job(gpu_names=(name,)))} == {"RTX 4090"}


def test_where_several_limits_hold_off_each_offer_the_one_that_most_fail_is_named(tmp_path: Path) -> None:
    machines = [Machine(id=n, datacenter=False, static_ip=n > 1) for n in (1, 2, 3)]
    with VastEmulator(machines, rate_limits=False) as vast:
        spec = job(datacenter=True, reliability=1.0, static_ip=True)
        with pytest.raises(NoOfferError) as caught:
            open_market(vast, tmp_path).search(spec)
    assert caught.value.hint == ("relax several limits in the job file; 3 of 3 offers fail reliability (1)")


def test_an_empty_market_is_no_offer(vast: VastEmulator, provider: VastProvider) -> None:
    vast.faults.add("no_offers", times=2)
    with pytest.raises(NoOfferError, match="0 offers"):
        provider.search(job())


def test_offer_that_only_the_market_report_finds_is_taken(vast: VastEmulator, provider: VastProvider) -> None:
    vast.faults.add("no_offers")
    assert provider.search(job())


def test_an_unknown_gpu_is_answered_with_the_nearest_names_of_the_market(provider: VastProvider) -> None:
    with pytest.raises(NoOfferError, match=r"fail gpu_names \(RTX4O90; the market has RTX 4090[^)]*\)"):
        provider.search(job(gpu_names=("RTX4O90",)))
    with pytest.raises(NoOfferError, match=r"fail gpu_names \(TPU v4\)"):
        provider.search(job(gpu_names=("TPU v4",)))
    (names,) = [
        one for one in provider.market_report(job(gpu_names=("4090",))).constraints if one.name == "gpu_names"
    ]
    assert names.text.startswith("4090; the market has RTX 4090")


def test_a_market_report_has_what_each_limit_took_and_each_offer_costs(provider: VastProvider) -> None:
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


SITES = [
    Machine(id=1, host_id=7, address="45.3.2.1"),
    Machine(id=2, host_id=8, address="45.3.2.1"),
    Machine(id=3, host_id=7, address="45.3.2.3"),
    Machine(id=4, host_id=9, address="45.3.2.4"),
]
AVOIDED: Mapping[str, tuple[AvoidedHosts, list[str]]] = {
    "machine": (AvoidedHosts(machines=frozenset({"4"})), ["1", "2", "3"]),
    "address": (AvoidedHosts(addresses=frozenset({"45.3.2.1"})), ["3", "4"]),
    "account": (AvoidedHosts(accounts=frozenset({"7"})), ["2", "4"]),
}


def hosts_of(offers: Sequence[Offer]) -> list[str]:
    return sorted(offer.host for offer in offers)


@pytest.mark.parametrize("kind", AVOIDED)
@pytest.mark.parametrize("ignored", [False, True])
def test_what_is_avoided_is_left_out_by_vast_and_here(tmp_path: Path, kind: str, ignored: bool) -> None:
    avoid, left = AVOIDED[kind]
    with VastEmulator(SITES, rate_limits=False) as vast:
        provider = avoiding(vast, tmp_path, avoid)
        if ignored:
            vast.faults.add("filters_ignored", times=99)
        assert hosts_of(provider.search(job())) == (["1", "2", "3", "4"] if ignored else left)
        assert hosts_of(choose_offers(LIMITED, provider, avoid, now=NOW)) == left
        assert len(provider.market_report(job()).quotes) == 4, "the report counts what is avoided"
        report = provider.market_report(job()).without_hosts(avoid)
        assert (report.avoided, hosts_of([quote.offer for quote in report.quotes])) == (4 - len(left), left)


def test_a_search_leaves_out_no_more_than_it_can_name(tmp_path: Path) -> None:
    avoid = AvoidedHosts(machines=frozenset(map(str, range(1000, 9999))), accounts=frozenset({"7"}))
    with VastEmulator(SITES, rate_limits=False) as vast:
        assert hosts_of(avoiding(vast, tmp_path, avoid).search(job())) == ["2", "4"]
    assert len(query(job(), bid=False, avoid=avoid)["machine_id"]["notin"]) <= 100
