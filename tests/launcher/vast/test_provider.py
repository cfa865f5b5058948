"""The provider against an emulated Vast: what fits, what is rented, and what is left when things go wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.errors import (
    AuthError,
    GoneError,
    NoOfferError,
    ProviderError,
    UncertainError,
    UnreachableError,
    VastrunError,
)
from launcher.job import JobSpec, Limits, Resources
from launcher.model import Cause, Instance, Order
from launcher.providers.vast import VastProvider
from launcher.providers.vast.api import Account
from launcher.shipped import onstart_dir
from tests.contract.markets import LEASE, RealClock
from tests.emulators.machines import Machine
from tests.emulators.vast import VastEmulator
from tests.fakes import FakeClock, train_job

LABEL = "vastrun-calm-heron-3f1a"


@pytest.fixture
def vast() -> Iterator[VastEmulator]:
    with VastEmulator(rate_limits=False) as vast:
        yield vast


@pytest.fixture
def provider(vast: VastEmulator, tmp_path: Path) -> VastProvider:
    return open_market(vast, tmp_path)


def open_market(vast: VastEmulator, state: Path) -> VastProvider:
    """The provider, with a clock that passes every pause at once."""
    account = Account(key=vast.account_key, server=vast.url)
    return VastProvider(account, state, clock=FakeClock(time.time()))


def job(**resources: Any) -> JobSpec:
    wanted: dict[str, Any] = {"gpus": 1, "disk_gb": 10.0} | resources
    return train_job(resources=Resources(**wanted), limits=Limits(hours=1.0))


def order(provider: VastProvider, spec: JobSpec | None = None, **changes: Any) -> Order:
    """The best offer, with a lease that never acts."""
    ordered = Order(
        offer=provider.search(spec or job())[0],
        label=LABEL,
        image="pytorch/pytorch:2.13.0",
        disk_gb=10.0,
        onstart="true\n",
        env=LEASE,
    )
    return replace(ordered, **changes)


def rent(provider: VastProvider) -> Instance:
    return provider.rent(order(provider))


# search


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


def test_a_survey_explains_the_market_and_the_best_offers(provider: VastProvider) -> None:
    text = str(provider.survey(job()))
    assert "offers" in text
    assert "1. $" in text


def test_the_daily_quota_of_searches_is_explained(vast: VastEmulator, provider: VastProvider) -> None:
    vast.faults.add("search_quota")
    with pytest.raises(ProviderError, match=r"daily quota .* UTC"):
        provider.search(job())


# rent


def test_a_machine_is_rented_as_it_was_ordered(vast: VastEmulator, provider: VastProvider) -> None:
    ordered = order(provider)
    machine = provider.rent(ordered)
    assert (machine.label, machine.host) == (LABEL, ordered.offer.host)
    assert machine.usd_per_hour == pytest.approx(ordered.offer.usd_per_hour)
    assert provider.instances()[0].id == machine.id


def test_an_interruptible_machine_is_bid_for(provider: VastProvider) -> None:
    ordered = order(provider, job(interruptible=True))
    assert ordered.offer.bid_usd_per_hour is not None
    assert provider.rent(ordered).usd_per_hour == pytest.approx(ordered.offer.usd_per_hour, abs=1e-3)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("no_such_ask", NoOfferError),
        ("unknown_ask", NoOfferError),
        ("no_such_ask_400", NoOfferError),
        ("bid_too_low", NoOfferError),
        ("created_stopped", NoOfferError),
        ("wrong_gpu", NoOfferError),
        ("small_disk", NoOfferError),
        ("higher_price", NoOfferError),
        ("insufficient_credit", ProviderError),
        ("spend_rate_limit", ProviderError),
    ],
)
def test_a_machine_that_is_refused_or_not_as_offered_leaves_nothing_behind(
    vast: VastEmulator, provider: VastProvider, fault: str, error: type[VastrunError]
) -> None:
    ordered = order(provider)
    vast.faults.add(fault)
    with pytest.raises(error) as caught:
        provider.rent(ordered)
    assert type(caught.value) is error
    assert not provider.instances()


@pytest.mark.parametrize(
    ("fault", "left"),
    [
        ("bad_gateway", 0),
        ("bad_gateway_done", 1),
        ("no_answer", 0),
        ("no_answer_done", 1),
        ("server_error", 0),
    ],
)
def test_without_a_clear_answer_it_asks_once_and_says_so(
    vast: VastEmulator, provider: VastProvider, fault: str, left: int
) -> None:
    ordered = order(provider)
    vast.faults.add(fault, endpoint="create")
    with pytest.raises(UncertainError):
        provider.rent(ordered)
    assert len(provider.instances()) == left


@pytest.mark.parametrize("fault", ["too_many_requests", "too_many_requests_json", "too_many_requests_header"])
def test_a_call_that_came_too_often_is_made_again_after_a_pause(
    vast: VastEmulator, provider: VastProvider, fault: str
) -> None:
    ordered = order(provider)
    vast.faults.add(fault, endpoint="create", times=2)
    provider.rent(ordered)
    assert len(provider.instances()) == 1


def test_a_machine_is_ours_though_nobody_could_look_at_it(vast: VastEmulator, provider: VastProvider) -> None:
    ordered = order(provider)
    vast.faults.add("server_error", endpoint="show_instance", times=99)
    machine = provider.rent(ordered)
    assert (machine.label, machine.usd_per_hour) == (LABEL, ordered.offer.usd_per_hour)


def test_nothing_is_rented_on_less_credit_than_the_worst_case(tmp_path: Path) -> None:
    with VastEmulator(rate_limits=False, credit_usd=0.1) as vast:
        provider = open_market(vast, tmp_path)
        with pytest.raises(ProviderError, match=r"\$0\.10 of credit") as caught:
            rent(provider)
        assert "billing" in caught.value.hint
        assert not provider.instances()


# instances


def test_machines_of_others_are_not_ours(vast: VastEmulator, provider: VastProvider) -> None:
    provider.rent(order(provider, label="somebody-else"))
    assert not provider.instances()


def test_every_page_of_the_list_is_read(tmp_path: Path) -> None:
    machines = [Machine(id=number) for number in range(41000, 41030)]
    with VastEmulator(machines, rate_limits=False) as vast:
        provider = open_market(vast, tmp_path)
        ids = {rent(provider).id for _ in range(27)}
        assert {machine.id for machine in provider.instances()} == ids


@pytest.mark.parametrize("fault", ["empty_list", "not_json", "server_error", "no_answer"])
def test_a_list_that_cannot_be_had_is_never_an_empty_list(
    vast: VastEmulator, provider: VastProvider, fault: str
) -> None:
    rent(provider)
    vast.faults.add(fault, times=99, endpoint=None if fault == "empty_list" else "list_instances")
    with pytest.raises(UnreachableError):
        provider.instances()


def test_a_list_is_asked_for_again_after_a_fault_that_passes(
    vast: VastEmulator, provider: VastProvider
) -> None:
    machine = rent(provider)
    vast.faults.add("bad_gateway", endpoint="list_instances")
    assert [found.id for found in provider.instances()] == [machine.id]


def test_a_malformed_row_hides_no_machine(vast: VastEmulator, provider: VastProvider) -> None:
    machine = rent(provider)
    vast.faults.add("malformed_row", times=2)
    assert [found.id for found in provider.instances()] == [machine.id]


@pytest.mark.parametrize("fault", ["invalid_key", "two_factor"])
def test_a_key_that_is_not_accepted_is_not_read_as_gone(
    vast: VastEmulator, provider: VastProvider, fault: str
) -> None:
    machine = rent(provider)
    for call in (provider.instances, lambda: provider.connect(machine), lambda: provider.destroy(machine.id)):
        vast.faults.add(fault)
        with pytest.raises(AuthError):
            call()


# destroy


def test_a_destroy_is_asked_for_again_after_a_fault_that_passes(
    vast: VastEmulator, provider: VastProvider
) -> None:
    machine = rent(provider)
    vast.faults.add("bad_gateway_done", endpoint="destroy")
    provider.destroy(machine.id)
    assert not provider.instances()


# connect


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("oci_failure", Cause.HOST),
        ("never_scheduled", Cause.HOST),
        ("pull_eof", Cause.HOST),
        ("pull_no_space", Cause.HOST),
        ("build_failure", Cause.HOST),
        ("image_not_found", Cause.USER_ERROR),
        ("pull_denied", Cause.USER_ERROR),
    ],
)
def test_a_box_that_never_comes_up_is_told_with_its_cause(
    vast: VastEmulator, provider: VastProvider, fault: str, cause: Cause
) -> None:
    vast.faults.add(fault)
    machine = rent(provider)
    error = eventually_refused(provider, machine)
    assert error.cause is cause


def test_a_box_that_loads_is_silent(vast: VastEmulator, provider: VastProvider) -> None:
    vast.faults.add("stuck_loading")
    machine = rent(provider)
    with pytest.raises(UnreachableError, match="not up"):
        provider.connect(machine)


def test_a_box_that_is_gone_is_told_so(provider: VastProvider) -> None:
    machine = rent(provider)
    provider.destroy(machine.id)
    with pytest.raises(GoneError):
        provider.connect(machine)


def test_a_stop_for_lack_of_credit_is_told_from_a_lost_bid(
    vast: VastEmulator, provider: VastProvider
) -> None:
    vast.faults.add("credit_zero")
    machine = provider.rent(order(provider, job(interruptible=True)))
    assert "credit is used up" in str(eventually_refused(provider, machine))


def test_a_stop_that_nobody_here_asked_for_is_a_loss(vast: VastEmulator, provider: VastProvider) -> None:
    machine = rent(provider)
    with vast.lock:
        vast.instances.stop(vast.instances.get(int(machine.id)))
    assert eventually_refused(provider, machine).cause is Cause.LOST


# the lease


@pytest.mark.parametrize("fault", [None, "onstart_by_sh"])
def test_a_machine_to_which_nothing_is_shipped_ends_itself(
    vast: VastEmulator, provider: VastProvider, fault: str | None
) -> None:
    if fault:
        vast.faults.add(fault)
    lease = (onstart_dir() / "lease.sh").read_text(encoding="utf-8")
    env = {**LEASE, "LEASE_SHIP_S": "1", "VASTRUN_PROVIDER": "vast"}
    provider.rent(order(provider, onstart=lease, env=env))
    assert provider.instances()
    assert eventually(lambda: not provider.instances())


# limits


def test_two_launchers_together_never_call_too_often(tmp_path: Path) -> None:
    with VastEmulator() as vast, ThreadPoolExecutor() as pool:
        account = Account(key=vast.account_key, server=vast.url)
        launchers = [VastProvider(account, tmp_path, clock=RealClock()) for _ in range(2)]
        for _ in range(2):
            list(pool.map(lambda launcher: launcher.instances(), launchers))
        assert vast.limits.refused == 0


# secrets


def test_no_key_is_in_any_file_or_error(vast: VastEmulator, provider: VastProvider, tmp_path: Path) -> None:
    machine = rent(provider)
    said = []
    for fault in ("server_error", "no_answer", "not_json", "invalid_key", "too_many_requests"):
        vast.faults.add(fault, times=99)
        for call in (provider.instances, lambda: provider.destroy(machine.id)):
            with pytest.raises(VastrunError) as caught:
                call()
            said.append(f"{caught.value!r} {caught.value} {caught.value.hint} {caught.value.__cause__!r}")
        vast.faults.clear()
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert vast.account_key not in " ".join(said)
    assert vast.account_key.encode() not in b" ".join(files)


def eventually(holds: Callable[[], bool]) -> bool:
    """Whether it comes true in time."""
    deadline = time.monotonic() + 20
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def eventually_refused(provider: VastProvider, machine: Instance) -> ProviderError:
    """The error with which the box is given up, once its row says so."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            provider.connect(machine).close()
        except UnreachableError:
            continue
        except ProviderError as error:
            return error
    raise AssertionError("it was not given up")
