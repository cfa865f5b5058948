"""Where the nodes of a run meet: of what a provider says, no more than a host and a port goes to a box."""

import os
import subprocess
from ipaddress import ip_address
from pathlib import Path

import pytest

from tests.hostile.texts import INTERFACES, PLACES, SUBNETS
from vastrun.launcher.core import Cause, Instance
from vastrun.launcher.core.errors import BoxError, ProviderError, UnreachableError
from vastrun.launcher.gate.rendezvous import ADDRESSES, find_address, parse_rendezvous

needs_proc = pytest.mark.skipif(not Path("/proc/net/fib_trie").exists(), reason="the kernel does not say")


def machine(rendezvous: str) -> Instance:
    return Instance(
        id="1", label="vastrun-a", state="running", usd_per_hour=0.0, rented_at=0.0, rendezvous=rendezvous
    )


@pytest.mark.parametrize(
    "said", ["10.0.0.1:29400", "node-0.cluster:20000", "[fd00::1]:29400", "a:1", "a:65533"]
)
def test_a_host_and_a_port_are_taken(said: str) -> None:
    assert parse_rendezvous(machine(said)) == said


@pytest.mark.parametrize("said", PLACES.values(), ids=PLACES)
def test_anything_else_is_refused_in_a_line_that_is_short(said: str) -> None:
    with pytest.raises(ProviderError) as refused:
        parse_rendezvous(machine(said))
    assert_harmless(str(refused.value))


@pytest.mark.parametrize("said", ["a:0", "a:65534"])
def test_a_port_without_room_for_the_next_two_is_refused(said: str) -> None:
    with pytest.raises(ProviderError, match=r"^1 has an invalid rendezvous address: 'a:"):
        parse_rendezvous(machine(said))


@pytest.mark.parametrize(
    ("subnet", "printed", "found"),
    [
        ("10.0.0.0/8", "10.255.255.254", "10.255.255.254"),
        ("10.5.0.9/24", "10.5.0.7 10.5.0.8", "10.5.0.7"),
        ("192.168.7.0/30", "192.168.7.4 192.168.7.1", "192.168.7.1"),
        ("10.5.0.0/24", "x " * 1995 + " 10.5.0.7", "10.5.0.7"),
    ],
)
def test_the_first_address_on_a_private_network_is_taken(subnet: str, printed: str, found: str) -> None:
    assert find_address(subnet, printed) == found


def test_a_larger_network_and_an_address_behind_4000_characters_are_refused() -> None:
    with pytest.raises(UnreachableError):
        find_address("10.0.0.0/7", "10.5.0.7")
    with pytest.raises(BoxError):
        find_address("10.5.0.0/24", "x " * 2000 + "10.5.0.7")


@pytest.mark.parametrize("printed", INTERFACES.values(), ids=INTERFACES)
def test_a_box_that_is_not_on_the_network_is_met_nowhere(printed: str) -> None:
    with pytest.raises(BoxError) as refused:
        find_address("10.5.0.0/24", printed)
    assert_harmless(str(refused.value))


@pytest.mark.parametrize("said", SUBNETS.values(), ids=SUBNETS)
def test_a_network_that_is_not_private_is_none(said: str) -> None:
    with pytest.raises(UnreachableError) as refused:
        find_address(said, "10.5.0.2 8.8.8.8")
    assert refused.value.cause is Cause.PROVIDER
    assert_harmless(str(refused.value))


def test_the_command_prints_the_addresses_of_this_computer() -> None:
    done = subprocess.run(["sh", "-c", ADDRESSES], capture_output=True, text=True, check=True)
    assert all(ip_address(word) for word in done.stdout.split())


@needs_proc
def test_where_hostname_is_not_there_the_kernel_is_asked(tmp_path: Path) -> None:
    hostname = tmp_path / "hostname"
    hostname.write_text("#!/bin/sh\nexit 1\n")
    hostname.chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", ADDRESSES], capture_output=True, text=True, check=True, env=path)
    assert find_address("127.0.0.0/8", done.stdout) == "127.0.0.1"


def assert_harmless(text: str) -> None:
    assert "\x1b" not in text
    assert "\n" not in text
    assert len(text) < 500
