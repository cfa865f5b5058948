"""Where the nodes of a run meet: of what a provider says, no more than a host and a port goes to a box."""

from __future__ import annotations

import pytest

from launcher.core import Instance
from launcher.core.errors import ProviderError
from launcher.gate.rendezvous import rendezvous_of
from tests.hostile.lies import STEERING


def machine(rendezvous: str) -> Instance:
    return Instance(
        id="1", label="vastrun-a", state="running", usd_per_hour=0.0, rented_at=0.0, rendezvous=rendezvous
    )


@pytest.mark.parametrize("said", ["10.0.0.1:29400", "node-0.cluster:20000", "[fd00::1]:29400"])
def test_a_host_and_a_port_are_taken(said: str) -> None:
    assert rendezvous_of(machine(said)) == said


@pytest.mark.parametrize(
    "said",
    [
        *("", "10.0.0.1", ":29400", "10.0.0.1:0", "10.0.0.1:65535", "10.0.0.1:99999", "a:1:2"),
        *("$(reboot):29400", "a b:29400", "a:29400\nLD_PRELOAD=/evil.so", "-o:29400", "x" * 300 + ":29400"),
        *("\u0661:29400", "a:\u0662\u0663\u0664", STEERING),
    ],
)
def test_anything_else_is_refused_in_a_line_that_is_short(said: str) -> None:
    with pytest.raises(ProviderError) as refused:
        rendezvous_of(machine(said))
    assert "\x1b" not in str(refused.value)
    assert len(str(refused.value)) < 500
