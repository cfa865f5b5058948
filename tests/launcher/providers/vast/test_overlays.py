"""Several nodes on Vast: one cluster, one overlay network for the run, which is gone when the run is."""

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.emulators.machines import Machine
from tests.emulators.vast import VastEmulator
from tests.launcher.providers.vast.rentals import job, open_market, order
from tests.waiting import eventually
from vastrun.launcher.core import RentalOrder
from vastrun.launcher.core.errors import (
    AuthError,
    BoxError,
    NoOfferError,
    ProviderError,
    UnreachableError,
    VastrunError,
)
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.flow.rental import choose_offers
from vastrun.launcher.providers.vast import VastProvider
from vastrun.launcher.providers.vast.overlays import label_in, name_of

LEDGER = "0123abcd"
LABELS = (f"vastrun-calm-heron-3f1a.{LEDGER}", f"vastrun-calm-heron-3f1a-n1.{LEDGER}")
OVERLAY = f"vastrun-calm-heron-3f1a-{LEDGER}"
MACHINES = [
    Machine(id=41000, gpu_usd=0.1),
    Machine(id=41001, cluster_id=7, gpu_usd=0.2),
    *(Machine(id=41002 + number, cluster_id=9, gpu_usd=0.4) for number in range(3)),
]
"""The cheapest is in no cluster, the next one alone in its cluster."""


@pytest.fixture
def vast() -> Iterator[VastEmulator]:
    with VastEmulator(MACHINES, rate_limits=False) as vast:
        yield vast


def two(**resources: object) -> JobSpec:
    spec = job(**resources)
    return replace(spec, nodes=2, limits=replace(spec.limits, usd=9.0))


def order_of(provider: VastProvider, node: int = 0, network: str = "") -> RentalOrder:
    offer = choose_offers(two(), provider, now=0.0, network=network)[node]
    # A session has the box's PATH from its lease, where the computer's first process is not the box's.
    lease = "mkdir -p ~/vastrun; cd ~/vastrun; echo pid=$$ >lease.state; exec sleep 1000"
    return order(provider, offer=offer, label=LABELS[node], nodes=LABELS, onstart=lease)


def test_the_machines_of_a_run_are_all_of_one_cluster_that_has_enough(provider: VastProvider) -> None:
    offers = choose_offers(two(), provider, now=0.0)
    assert {offer.host for offer in offers} == {"41002", "41003", "41004"}
    assert {offer.network for offer in offers} == {"9"}


def test_one_machine_may_be_on_any(provider: VastProvider) -> None:
    assert choose_offers(replace(two(), nodes=1), provider, now=0.0)[0].host == "41000"


def test_a_market_without_clusters_refuses_nodes_and_says_why_and_what_could_be_had(tmp_path: Path) -> None:
    with VastEmulator([Machine(id=1, gpus=2), Machine(id=2, gpus=2)], rate_limits=False) as vast:
        provider = open_market(vast, tmp_path)
        with pytest.raises(NoOfferError, match=r"fail nodes \(in a cluster\).* NAT, where NCCL") as refused:
            choose_offers(two(gpus=2), provider, now=0.0)
    assert refused.value.exit_code == 8
    for other in ("--set nodes=1 --set resources.gpus=4", "slurm", "docker"):
        assert other in refused.value.hint


def test_a_cluster_that_is_too_small_is_refused_as_well(provider: VastProvider) -> None:
    with pytest.raises(NoOfferError, match=r"4 offers of vast fit, but no network of it has 4 machines"):
        choose_offers(replace(two(), nodes=4), provider, now=0.0)


def test_a_vast_without_overlays_is_refused_before_anything_is_searched(
    vast: VastEmulator, provider: VastProvider
) -> None:
    vast.faults.add("overlays_off")
    with pytest.raises(NoOfferError, match=r"nodes need an overlay network, and Vast has none .* NAT"):
        choose_offers(two(), provider, now=0.0)
    assert ("POST", "/api/v0/bundles/") not in vast.requests


@pytest.mark.parametrize("fault", ["overlay_read_denied", "overlay_denied"])
def test_a_key_that_may_not_use_overlays_is_told_what_it_lacks(
    vast: VastEmulator, provider: VastProvider, fault: str
) -> None:
    vast.faults.add(fault)
    with pytest.raises(AuthError, match="may not use overlay networks") as refused:
        provider.rent(order_of(provider))
    assert "user_write" in refused.value.hint
    assert len(vast.instances) == 0


def test_a_runs_machines_join_one_overlay_of_its_label(vast: VastEmulator, provider: VastProvider) -> None:
    for node in (0, 1):
        provider.rent(order_of(provider, node))
    (overlay,) = vast.overlays
    assert (overlay.name, overlay.cluster_id) == (OVERLAY, 9)
    assert [one.rental.networks for one in vast.instances] == [[OVERLAY]] * 2
    assert [network.label for network in provider.abilities.networks.run_networks()] == [LABELS[0]]  # type: ignore[union-attr]


def test_what_is_asked_for_is_shown_with_the_overlay(provider: VastProvider) -> None:
    assert provider.request(order_of(provider))["env"][f"-n {OVERLAY}"] == "1"
    assert not any(name.startswith("-n") for name in provider.request(order(provider))["env"])


def test_overlay_that_was_made_without_an_answer_is_used(vast: VastEmulator, provider: VastProvider) -> None:
    vast.faults.add("overlay_made_unsaid")
    provider.rent(order_of(provider))
    assert len(vast.overlays) == 1


def test_node_0_takes_its_overlay_to_another_cluster(vast: VastEmulator, provider: VastProvider) -> None:
    with vast.lock:
        vast.overlays.add(OVERLAY, 7)
    provider.rent(order_of(provider))
    assert [overlay.cluster_id for overlay in vast.overlays] == [9]


def test_another_node_stays_in_the_cluster_of_node_0(vast: VastEmulator, provider: VastProvider) -> None:
    with vast.lock:
        vast.overlays.add(OVERLAY, 7)
    with pytest.raises(NoOfferError, match="cluster 9, the run's network on 7"):
        provider.rent(order_of(provider, 1))
    with pytest.raises(NoOfferError, match=r"but the network of the run's other nodes, 8, has"):
        choose_offers(two(), provider, now=0.0, network="8")


def test_a_machine_that_may_not_join_is_not_had(vast: VastEmulator, provider: VastProvider) -> None:
    vast.faults.add("join_refused")
    with pytest.raises(ProviderError, match="may not join"):
        provider.rent(order_of(provider))
    assert len(vast.instances) == 0


def test_an_overlay_is_deleted_and_its_absence_is_seen(vast: VastEmulator, provider: VastProvider) -> None:
    machine = provider.rent(order_of(provider))
    provider.destroy(machine.id)
    networks = provider.abilities.networks
    assert networks is not None
    networks.remove_network(LABELS[0])
    assert len(vast.overlays) == 0
    networks.remove_network(LABELS[0])


@pytest.mark.parametrize(
    ("fault", "times", "left"),
    [("overlay_stays", 1, 0), ("overlay_in_use", 1, 0), ("overlay_stays", 99, 1), ("overlay_in_use", 99, 1)],
)
def test_an_overlay_that_outlives_its_instances_is_asked_for_again_and_told(
    vast: VastEmulator, provider: VastProvider, fault: str, times: int, left: int
) -> None:
    provider.destroy(provider.rent(order_of(provider)).id)
    vast.faults.add(fault, times=times)
    networks = provider.abilities.networks
    assert networks is not None
    said = ""
    try:
        networks.remove_network(LABELS[0])
    except ProviderError as error:
        said = str(error)
    assert (len(vast.overlays), OVERLAY in said) == (left, bool(left))


def said_by(provider: VastProvider, machine_id: str) -> str | VastrunError:
    """Where the machine says that it is met, or why it does not, once it answers."""

    def ask() -> str | VastrunError | None:
        machine, networks = provider.machine(machine_id), provider.abilities.networks
        assert machine is not None and networks is not None
        try:
            with closing(provider.connect(replace(machine, label=LABELS[0]))) as remote:
                return networks.rendezvous(LABELS[0], remote)
        except UnreachableError:
            return None
        except ProviderError as error:
            return error

    said = eventually(ask)
    assert said is not None
    return said


def test_a_box_says_where_it_is_met_on_its_overlay(vast: VastEmulator, provider: VastProvider) -> None:
    machine = provider.rent(order_of(provider))
    place = said_by(provider, machine.id)
    host, _, port = str(place).partition(":")
    assert host == vast.instances.get(int(machine.id)).address
    assert 20_000 <= int(port) < 29_000


def test_a_box_without_an_overlay_interface_is_not_used(vast: VastEmulator, provider: VastProvider) -> None:
    vast.faults.add("no_interface")
    error = said_by(provider, provider.rent(order_of(provider)).id)
    assert isinstance(error, BoxError)
    assert re.search(r"no interface on 127\.0\.0\.0/8", str(error))


def test_names_of_overlays_are_vasts_and_name_their_run() -> None:
    assert name_of(LABELS[0]) == OVERLAY
    assert label_in(OVERLAY) == LABELS[0]
    for other in ("mine", "vastrun-", "vastrun-calm-heron", f"vastrun-calm_heron-{LEDGER}", f"{OVERLAY}\n"):
        assert label_in(other) is None
