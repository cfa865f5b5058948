"""What every shell on a machine promises."""

from __future__ import annotations

from vastrun.testing.contract import RemoteContract


class TestRemote(RemoteContract):
    """Those of each provider that comes with vastrun, and of the tests."""
