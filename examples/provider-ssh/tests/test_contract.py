"""The contract of vastrun's providers, on real SSH servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import make_lab

from vastrun.testing.contract import ProviderContract, ProviderSetup, RemoteContract


@pytest.fixture(scope="module")
def provider_setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProviderSetup]:
    """One workstation with two slots."""
    lab = make_lab(tmp_path_factory.mktemp("contract"), turing={"slots": 2})
    setup = ProviderSetup(provider=lab.provider(), again=lab.provider, close=lab.close)
    yield setup
    setup.clear()
    setup.close()


class TestProvider(ProviderContract):
    """What every provider promises."""


class TestRemote(RemoteContract):
    """What every shell on a machine promises."""
