"""Every test of the contract meets every provider."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.markets import MAKERS, PRETENDED, SYSTEMS, Market
from vastrun.launcher.core import Instance
from vastrun.launcher.ports import Remote


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A provider whose boxes run no command is not asked to run one."""
    if "open_market" in metafunc.fixturenames:
        names = [name for name in MAKERS if name not in PRETENDED or not _needs_a_real_one(metafunc)]
        needs = {name: [pytest.mark.needs(name)] for name in SYSTEMS}
        markets = [pytest.param(name, marks=needs.get(name, [])) for name in names]
        metafunc.parametrize("open_market", markets, indirect=True)


def _needs_a_real_one(metafunc: pytest.Metafunc) -> bool:
    return "shell" in metafunc.fixturenames or any(metafunc.definition.iter_markers("real"))


@pytest.fixture(scope="module")
def open_market(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Market]:
    """A provider, for all tests of a file: a machine to hold, or a server, starts once."""
    market = MAKERS[request.param](tmp_path_factory.mktemp(request.param))
    yield market
    clear(market)
    market.close()


def clear(market: Market) -> None:
    for instance in market.provider.instances():
        market.provider.destroy(instance.id)


@pytest.fixture
def market(open_market: Market) -> Iterator[Market]:
    """With nothing rented; nothing is left of a test afterwards."""
    yield open_market
    clear(open_market)


@pytest.fixture
def instance(market: Market) -> Instance:
    """A machine, rented for this test."""
    return market.provider.rent(market.order("vastrun-calm-heron-3f1a"))


@pytest.fixture(scope="module")
def machine(open_market: Market) -> Instance:
    """A machine, rented for all tests of a file: each has files of its own names there."""
    return open_market.provider.rent(open_market.order("vastrun-calm-heron-3f1a"))


@pytest.fixture
def remote(open_market: Market, machine: Instance) -> Iterator[Remote]:
    """A shell on it."""
    remote = open_market.provider.connect(machine)
    yield remote
    remote.close()


@pytest.fixture
def shell(remote: Remote) -> Remote:
    """A shell that runs any command."""
    return remote
