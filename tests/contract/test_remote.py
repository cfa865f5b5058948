"""What every shell on a machine promises."""

from vastrun.testing.contract import RemoteContract


class TestRemote(RemoteContract):
    """Those of each provider that comes with vastrun, and of the tests."""
