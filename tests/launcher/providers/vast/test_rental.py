"""Renting: one request, and a machine that is ours, or none."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.emulators.instance import Pace
from tests.emulators.machines import Machine
from tests.emulators.vast import VastEmulator
from tests.fakes import FakeClock
from tests.launcher.providers.vast.rentals import LABEL, open_market, order, rent
from tests.waiting import eventually
from vastrun.launcher.core import Instance
from vastrun.launcher.core.errors import NoOfferError, ProviderError, UncertainError, VastrunError
from vastrun.launcher.providers.vast import VastProvider


def test_a_machine_is_rented_as_it_was_ordered(vast: VastEmulator, provider: VastProvider) -> None:
    ordered = order(provider)
    machine = provider.rent(ordered)
    assert (machine.label, machine.host) == (LABEL, ordered.offer.host)
    assert machine.usd_per_hour == pytest.approx(ordered.offer.usd_per_hour)
    assert provider.instances()[0].id == machine.id


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("no_such_ask", NoOfferError),
        ("unknown_ask", NoOfferError),
        ("no_such_ask_400", NoOfferError),
        ("bid_rejected", NoOfferError),
        ("created_stopped", NoOfferError),
        ("insufficient_credit", ProviderError),
        ("spend_rate_limit", ProviderError),
    ],
)
def test_a_refused_request_leaves_nothing_behind(
    vast: VastEmulator, provider: VastProvider, fault: str, error: type[VastrunError]
) -> None:
    ordered = order(provider)
    vast.faults.add(fault)
    with pytest.raises(error) as caught:
        provider.rent(ordered)
    assert type(caught.value) is error
    assert not provider.instances()
    assert [getattr(caught.value, "ended", "")] == ([str(id_) for id_ in vast.billing.meters] or [""])


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


def rented_by_another(vast: VastEmulator, provider: VastProvider, label: str) -> Instance:
    """Another machine of the account, with that label."""
    machine = provider.rent(order(provider))
    next(iter(vast.instances)).label = label
    return machine


@pytest.mark.parametrize("label", ["vastrun-other-run-0001", "theirs", LABEL, ""])
@pytest.mark.parametrize("fault", ["create_names_other", "refusal_names_other"])
@pytest.mark.parametrize("unseen", ["", "list_instances", "show_instance"])
@pytest.mark.sampled(5)
def test_an_answer_with_the_id_of_another_machine_leaves_that_machine_alone(
    vast: VastEmulator, provider: VastProvider, fault: str, label: str, unseen: str
) -> None:
    other = rented_by_another(vast, provider, label)
    if unseen:
        vast.faults.add("server_error", endpoint=unseen, times=3)
    vast.faults.add(fault)
    with pytest.raises(UncertainError, match=f"another machine, {other.id}"):
        provider.rent(order(provider))
    assert str(next(iter(vast.instances)).id) == other.id
    assert [one.label for one in vast.instances] == [
        label,
        *([LABEL] if fault == "create_names_other" else []),
    ]


def test_a_machine_without_a_label_is_named_by_its_host(vast: VastEmulator, provider: VastProvider) -> None:
    other = rented_by_another(vast, provider, "")
    vast.faults.add("hidden_row", seconds=3600.0)
    vast.faults.add("refusal_names_other")
    with pytest.raises(UncertainError, match=f"its machine {other.host} instead of"):
        provider.rent(order(provider))
    assert str(next(iter(vast.instances)).id) == other.id


def test_a_machine_whose_label_is_ours_is_ours_though_the_account_could_not_be_listed(
    vast: VastEmulator, provider: VastProvider
) -> None:
    ordered = order(provider)
    vast.faults.add("server_error", endpoint="list_instances", times=3)
    assert provider.rent(ordered).label == LABEL


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


def test_no_two_runs_of_a_crowd_try_the_same_offer(vast: VastEmulator, tmp_path: Path) -> None:
    provider = open_market(vast, tmp_path, many_runs=True)
    first, second = order(provider), order(provider)
    assert first.offer.id == second.offer.id
    provider.rent(first)
    with pytest.raises(NoOfferError, match="another run of this launcher ordered it"):
        provider.rent(second)
    assert order(provider).offer.id != first.offer.id
    assert sum(path.startswith("/api/v0/asks/") for _, path in vast.requests) == 1


def test_a_machine_that_a_run_of_a_crowd_gave_back_is_rented_again_at_once(tmp_path: Path) -> None:
    with VastEmulator([Machine(id=41000)], rate_limits=False) as vast:
        clock = FakeClock(time.time())
        provider = open_market(vast, tmp_path, clock, many_runs=True)
        clock.sleep(0.1)
        provider.destroy(rent(provider).id)
        clock.sleep(1.0)  # less than the market's list is good for
        assert rent(provider).state


@pytest.mark.parametrize("pace", [Pace(loading_s=2.0)])  # a slow computer has listed it before it runs
def test_a_crowds_machine_running_since_the_list_is_seen_to_run(vast: VastEmulator, tmp_path: Path) -> None:
    clock = FakeClock(time.time())
    provider = open_market(vast, tmp_path, clock, many_runs=True)
    machine = rent(provider)
    assert provider.instances()[0].idle
    eventually(lambda: any(one.running_since for one in vast.instances), what="a machine that runs")
    assert provider.instances()[0].idle  # the list is some seconds old
    now = provider.machine(machine.id)
    assert now is not None and not now.idle


def test_a_machine_that_a_crowd_rented_is_looked_at_in_its_list(vast: VastEmulator, tmp_path: Path) -> None:
    provider = open_market(vast, tmp_path, many_runs=True)
    assert rent(provider).usd_per_hour > 0
    assert not _looks_by_id(vast)


def test_a_machine_that_a_crowds_list_omits_is_read_by_its_id(vast: VastEmulator, tmp_path: Path) -> None:
    vast.faults.add("hidden_row")
    provider = open_market(vast, tmp_path, many_runs=True)
    assert rent(provider).usd_per_hour > 0
    assert _looks_by_id(vast) == 1


def test_that_a_machine_which_a_crowd_gave_back_is_gone_is_asked_by_its_id_once(
    vast: VastEmulator, tmp_path: Path
) -> None:
    clock = FakeClock(time.time())
    provider = open_market(vast, tmp_path, clock, many_runs=True)
    machine = rent(provider)
    provider.destroy(machine.id)
    for _ in range(2):
        assert not provider.instances()
        assert provider.machine(machine.id) is None
        clock.sleep(2.0)
    assert _looks_by_id(vast) == 1


def test_a_machine_returned_by_a_crowd_and_listed_again_is_there(vast: VastEmulator, tmp_path: Path) -> None:
    clock = FakeClock(time.time())
    provider = open_market(vast, tmp_path, clock, many_runs=True)
    machine = rent(provider)
    vast.faults.add("absent_row", seconds=600)
    vast.faults.add("destroy_ignored")
    provider.destroy(machine.id)
    assert provider.machine(machine.id) is None
    vast.advance(600)
    eventually(lambda: (clock.sleep(10.0), provider.machine(machine.id))[1], what="the machine")


def test_nothing_is_rented_on_less_credit_than_the_worst_case(tmp_path: Path) -> None:
    with VastEmulator(rate_limits=False, credit_usd=0.1) as vast:
        provider = open_market(vast, tmp_path)
        with pytest.raises(ProviderError, match=r"\$0\.10 of credit") as caught:
            rent(provider)
        assert "billing" in caught.value.hint
        assert not provider.instances()


def test_an_account_that_tops_up_by_itself_is_warned_and_not_refused(tmp_path: Path) -> None:
    with VastEmulator(rate_limits=False, credit_usd=0.1) as vast:
        provider, warnings = open_market(vast, tmp_path), []
        assert provider.rent(replace(order(provider), warn_of_credit=warnings.append))
        assert len(warnings) == 1 and "$0.10 of credit" in warnings[0]


def _looks_by_id(vast: VastEmulator) -> int:
    return sum(path.startswith("/api/v0/instances/5") for method, path in vast.requests if method == "GET")
