"""The nodes of a run: which are waited for, and whose end ends them all."""

from dataclasses import replace

import pytest

from tests.fakes import FakeClock, FakeProvider
from tests.jobs import train_job
from tests.runs import a_run
from vastrun.launcher.core import Cause, Event, Phase, Run
from vastrun.launcher.decisions import nodes
from vastrun.launcher.decisions.history import blames_host
from vastrun.launcher.decisions.policy import lease_of, reservation_usd, share_usd, worst_case_usd

FIRST = a_run(provider="fake", phase=Phase.RENT)


def node(number: int, phase: Phase = Phase.RENT, cause: Cause | None = None) -> Run:
    return replace(FIRST, node=number, phase=phase, cause=cause, leader=FIRST.id if number else "")


def test_a_node_rents_once_all_are_planned_and_those_before_it_have_their_machine() -> None:
    assert nodes.may_rent(node(0), [node(1)])
    assert not nodes.may_rent(node(0), [node(1, Phase.PLAN)])
    assert not nodes.may_rent(node(1), [node(0), node(2)])
    assert nodes.may_rent(node(1), [node(0, Phase.BOOT), node(2)])


def test_a_node_joins_the_network_of_the_first_node_before_it_that_has_an_offer() -> None:
    (offer, *_) = FakeProvider(FakeClock()).search(train_job())
    planned = [replace(node(n), offer=replace(offer, network=f"net-{n}")) for n in range(3)]
    assert nodes.network_of(node(2), planned[:2]) == "net-0"
    assert nodes.network_of(node(2), [planned[1], planned[0]]) == "net-0"
    assert nodes.network_of(node(2), [node(0), planned[1]]) == "net-1"
    assert nodes.network_of(node(1), [planned[2], node(0)]) == ""
    assert nodes.network_of(node(0), planned[1:]) == ""
    assert nodes.network_of(node(1), [replace(node(0), offer=offer)]) == offer.network == ""


def test_a_phase_is_reached_in_it_and_beyond() -> None:
    assert nodes.have_reached([node(1, Phase.TRAIN), node(2, Phase.ENDED)], Phase.TRAIN)
    assert not nodes.have_reached([node(1, Phase.SHIP)], Phase.TRAIN)
    assert nodes.have_reached([], Phase.TRAIN)


def test_a_node_that_lost_its_peers_knows_less_than_the_one_that_was_lost() -> None:
    silent, gone = node(1, cause=Cause.COMMUNICATION), node(2, cause=Cause.LOST)
    assert nodes.first_failed([node(0), silent, gone]) == gone
    assert nodes.first_failed([node(0), silent]) == silent
    assert nodes.first_failed([node(0)]) is None


def test_the_price_of_a_run_is_that_of_all_its_machines() -> None:
    first = replace(node(0), usd_per_hour=4.0)
    assert nodes.at_total_price(first, [replace(node(n), usd_per_hour=n) for n in (1, 2)]).usd_per_hour == 7.0
    assert nodes.at_total_price(first, []) == first


@pytest.mark.parametrize(
    ("cause", "node_", "text"),
    [
        (Cause.HOST, 1, "node 1: it broke"),
        (Cause.HOST, None, "it broke"),
        (Cause.STOPPED, 1, "it broke"),
        (Cause.MONEY_LIMIT, 0, "it broke"),
    ],
)
def test_what_comes_to_all_nodes_alike_names_none(cause: Cause, node_: int | None, text: str) -> None:
    assert nodes.with_node_name("it broke", cause, node_) == text


def test_only_the_host_of_the_node_that_failed_is_to_blame() -> None:
    failed = replace(node(1, cause=Cause.HOST), failed_node=1)
    other = replace(node(0, cause=Cause.HOST), failed_node=1)
    assert blames_host(failed)
    assert not blames_host(other)


def test_the_limits_on_money_are_of_all_nodes_together() -> None:
    one, two = train_job(), train_job(nodes=2)
    offer = FakeProvider(FakeClock()).search(one)[0]
    assert (share_usd(one), share_usd(two)) == (3.0, 1.5)
    assert reservation_usd(two) == reservation_usd(one) == 3.0
    assert lease_of(two, offer).life_s == pytest.approx(lease_of(one, offer).life_s / 2)
    assert worst_case_usd(two, offer) == pytest.approx(worst_case_usd(one, offer))


def test_a_line_of_the_diary_of_all_has_what_each_node_had_told_to_have_cost_by_then() -> None:
    def told(at: float, usd: float, kind: str = "") -> Event:
        return Event(run_id="x", at=at, phase=Phase.TRAIN, text="", usd=usd, told=kind)

    own = [told(1.0, 0.5), told(3.0, 1.0), told(3.5, 9.0, "budget"), told(5.0, 2.0)]
    others = [[told(2.0, 0.25), told(3.0, 0.5)], [told(4.0, 4.0)]]
    assert [event.usd for event in nodes.joint_diary(own, others)] == [0.5, 1.5, 9.0, 6.5]
    assert nodes.joint_diary(own, []) == own
