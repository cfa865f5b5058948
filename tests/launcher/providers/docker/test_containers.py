"""Real containers: what befalls them, and what is left of them."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.markets import real_docker
from tests.waiting import LONGEST_S, eventually
from vastrun.launcher.core import Cause, Instance
from vastrun.launcher.core.errors import GoneError, ProviderError, UnreachableError
from vastrun.launcher.ports import Remote
from vastrun.launcher.providers.docker import DockerProvider
from vastrun.testing.setup import LEASE, ProviderSetup, RealClock

sdk = pytest.importorskip("docker")
pytestmark = pytest.mark.needs("docker")

SETPCAP, NET_RAW, SYS_PTRACE, SYS_ADMIN, MKNOD, SETFCAP = 8, 13, 19, 21, 27, 31
"""Numbers of capabilities, as the kernel counts them."""


@pytest.fixture
def market(tmp_path: Path) -> Iterator[ProviderSetup]:
    market = real_docker(tmp_path)
    yield market
    for instance in market.provider.instances():
        market.provider.destroy(instance.id)


def rented(market: ProviderSetup, memory_gb: float = 0.0, **lease: str) -> Instance:
    order = market.order("vastrun-calm-heron-3f1a", env={**LEASE, "VASTRUN_PROVIDER": "docker", **lease})
    return market.provider.rent(replace(order, memory_gb=memory_gb))


def answer_of(market: ProviderSetup, instance: Instance) -> Remote:
    """A shell, once the box answers."""

    def shell() -> Remote | None:
        try:
            remote = market.provider.connect(instance)
            remote.read("lease.state")
            return remote
        except UnreachableError:
            return None

    remote = eventually(shell, what="an answer")
    assert remote is not None
    return remote


def states(market: ProviderSetup) -> list[str]:
    return [instance.state for instance in market.provider.instances()]


def error_of(verb: Callable[[], object]) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        verb()
    return caught.value


def test_a_container_that_is_paused_or_off_its_network_is_silent_and_one_that_was_killed_is_lost(
    market: ProviderSetup,
) -> None:
    client = sdk.from_env()
    instance = rented(market)
    container, bridge = client.containers.get(instance.id), client.networks.get("bridge")

    container.pause()
    error = error_of(lambda: market.provider.connect(instance))
    assert isinstance(error, UnreachableError)
    assert "paused" in str(error)
    container.unpause()
    answer_of(market, instance).close()

    bridge.disconnect(container)
    error = error_of(lambda: market.provider.connect(instance))
    assert isinstance(error, UnreachableError)
    assert "on no network" in str(error)
    bridge.connect(container)
    remote = answer_of(market, instance)

    container.kill()
    assert isinstance(error_of(lambda: remote.read("lease.state")), UnreachableError)
    error = error_of(lambda: market.provider.connect(instance))
    assert error.cause is Cause.LOST
    assert "was killed, but not by this launcher" in str(error)
    assert states(market) == ["exited"]


def test_a_container_that_somebody_removed_is_gone(market: ProviderSetup) -> None:
    instance = rented(market)
    remote = answer_of(market, instance)
    sdk.from_env().containers.get(instance.id).remove(force=True)
    assert isinstance(error_of(lambda: remote.read("lease.state")), GoneError)
    assert isinstance(error_of(lambda: market.provider.connect(instance)), GoneError)
    assert states(market) == []


def test_a_paused_container_can_be_destroyed(market: ProviderSetup) -> None:
    instance = rented(market)
    sdk.from_env().containers.get(instance.id).pause()
    market.provider.destroy(instance.id)
    assert states(market) == []


def test_a_container_whose_lease_is_over_ends_by_itself_and_keeps_nothing_but_its_last_words(
    market: ProviderSetup,
) -> None:
    instance = rented(market, LEASE_LIFE_S="20", LEASE_GRACE_S="0")
    eventually(lambda: states(market) == ["exited"], what="its end")
    error = error_of(lambda: market.provider.connect(instance))
    assert error.cause is Cause.LOST
    assert "the lease has ended this container" in str(error)
    container = sdk.from_env().containers.get(instance.id)
    left = [change["Path"] for change in container.diff() if change["Path"].startswith("/root/vastrun")]
    assert left == []


def test_a_lease_that_was_killed_is_started_again_and_counts_on(market: ProviderSetup) -> None:
    remote = answer_of(market, rented(market))
    before = dict(line.split("=", 1) for line in remote.read("lease.state").decode().splitlines())
    forged = "sed -i 's/armed_at=.*/armed_at=9999999999/' lease.state"
    remote.run(f"{forged} && kill -KILL {before['pid']}", timeout_s=LONGEST_S)

    def now() -> dict[str, str]:
        return dict(line.split("=", 1) for line in remote.read("lease.state").decode().splitlines())

    eventually(lambda: now()["pid"] != before["pid"], what="another lease")
    assert (
        abs(int(now()["armed_at"]) - int(before["armed_at"])) <= 2
    )  # by the container's own clock, in seconds


def test_a_container_has_few_of_roots_rights_and_gets_no_more(market: ProviderSetup) -> None:
    instance = rented(market)
    remote = answer_of(market, instance)
    shown = remote.run(
        "cat /proc/self/status; mknod null c 1 3 || echo no devices", timeout_s=LONGEST_S
    ).stdout
    facts = dict(line.split(":\t", 1) for line in shown.splitlines() if ":\t" in line)
    assert facts["NoNewPrivs"].strip() == "1"
    held = {bit for bit in range(64) if int(facts["CapBnd"], 16) >> bit & 1}
    assert not held & {SETPCAP, NET_RAW, SYS_PTRACE, SYS_ADMIN, MKNOD, SETFCAP}
    assert "no devices" in shown
    config = sdk.from_env().containers.get(instance.id).attrs["HostConfig"]
    assert 0 < config["PidsLimit"] < 100_000


def test_a_program_that_needs_more_memory_than_the_job_asks_for_is_killed_and_its_box_goes_on(
    market: ProviderSetup,
) -> None:
    remote = answer_of(market, rented(market, memory_gb=0.256))
    assert remote.run("python3 -c 'bytearray(400 << 20)'", timeout_s=LONGEST_S).exit_code == 137
    shared = remote.run("df -k --output=size /dev/shm | tail -n 1", timeout_s=LONGEST_S).stdout
    assert shared.split() == ["1953128"]


def test_another_ledgers_containers_are_never_touched(market: ProviderSetup, tmp_path: Path) -> None:
    instance = rented(market)
    other = DockerProvider(tmp_path / "another", os.environ, clock=RealClock())
    assert not other.instances()
    with pytest.raises(GoneError):
        other.connect(instance)
    other.destroy(instance.id)
    assert states(market) == ["running"]


def test_what_is_no_box_is_no_machine_to_destroy(market: ProviderSetup) -> None:
    for name in ("", "..", "a/b", "vastrun-base", "vastrun-calm-heron-3f1a.0000"):
        market.provider.destroy(name)


def test_a_runs_containers_reach_each_other_and_their_network_goes_last(market: ProviderSetup) -> None:
    labels = ("vastrun-calm-heron-3f1a", "vastrun-calm-heron-3f1a-n1")
    first, second = (
        market.provider.rent(
            replace(market.order(label, env={**LEASE, "VASTRUN_PROVIDER": "docker"}), nodes=labels)
        )
        for label in labels
    )
    host, _, port = market.provider.machine(first.id).rendezvous.partition(":")  # type: ignore[union-attr]
    listens = f"python3 -m http.server {port} >/dev/null 2>&1 </dev/null &"
    assert answer_of(market, first).run(listens, timeout_s=LONGEST_S).exit_code == 0
    fetch = f"curl -fs --retry 20 --retry-connrefused --retry-delay 1 http://{host}:{port}/ >/dev/null"
    assert answer_of(market, second).run(fetch, timeout_s=60).exit_code == 0
    networks = sdk.from_env().networks
    assert [network.name for network in networks.list(names=[labels[0]])] == [labels[0]]
    market.provider.destroy(first.id)
    assert networks.list(names=[labels[0]]), "it has a container yet"
    market.provider.destroy(second.id)
    assert not networks.list(names=[labels[0]])
