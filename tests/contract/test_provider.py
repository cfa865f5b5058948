"""What every provider promises."""

from tests.contract.markets import MAKERS
from vastrun.launcher.providers import PROVIDERS
from vastrun.testing.contract import ProviderContract


class TestProvider(ProviderContract):
    """Each one that comes with vastrun, and those of the tests."""


def test_every_registered_provider_meets_the_contract() -> None:
    assert set(PROVIDERS) <= set(MAKERS)
