"""Every test of the contract meets every provider."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.model import Instance
from launcher.ports import Remote
from tests.contract.markets import MAKERS, MARKED, Market

ALL = [pytest.param(name, marks=getattr(pytest.mark, name)) if name in MARKED else name for name in MAKERS]


@pytest.fixture(params=ALL)
def market(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Market]:
    """A provider with nothing rented; nothing is left of it afterwards."""
    market = MAKERS[request.param](tmp_path)
    yield market
    for instance in market.provider.instances():
        market.provider.destroy(instance.id)
    market.close()


@pytest.fixture
def instance(market: Market) -> Instance:
    """A machine, rented."""
    return market.provider.rent(market.order("vastrun-calm-heron-3f1a"))


@pytest.fixture
def remote(market: Market, instance: Instance) -> Iterator[Remote]:
    """A shell on a rented machine."""
    remote = market.provider.connect(instance)
    yield remote
    remote.close()


@pytest.fixture
def shell(market: Market, remote: Remote) -> Remote:
    """A shell that runs any command."""
    if not market.real:
        pytest.skip("its boxes know the launcher's own commands only")
    return remote
