"""Every test of the contract meets every provider."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.core import Instance
from launcher.ports import Remote
from tests.contract.markets import MAKERS, PRETENDED, Market


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A provider whose boxes run no command is not asked to run one."""
    if "market" in metafunc.fixturenames:
        names = [name for name in MAKERS if name not in PRETENDED or not _needs_a_real_one(metafunc)]
        metafunc.parametrize("market", names, indirect=True)


def _needs_a_real_one(metafunc: pytest.Metafunc) -> bool:
    return "shell" in metafunc.fixturenames or any(metafunc.definition.iter_markers("real"))


@pytest.fixture
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
def shell(remote: Remote) -> Remote:
    """A shell that runs any command."""
    return remote
