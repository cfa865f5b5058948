"""What every provider, and every shell on a machine, promises."""

from tests.contract.markets import MAKERS
from vastrun.launcher.providers import PROVIDERS
from vastrun.testing.contract import ProviderContract, RemoteContract


class TestProvider(ProviderContract):
    """Each one that comes with vastrun, and those of the tests."""


def test_every_registered_provider_meets_the_contract() -> None:
    assert set(PROVIDERS) <= set(MAKERS)


class TestRemote(RemoteContract):
    """Those of each provider that comes with vastrun, and of the tests."""
