"""What a computer cannot run is skipped with a line that says so; in CI nothing is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SSHD = Path("/usr/sbin/sshd")
EMULATED = ("tests/emulators/", "tests/launcher/vast/", "tests/launcher/ssh/", "tests/e2e/test_vast_")
EMULATED_TOO = ("tests/e2e/test_secrets.py", "tests/e2e/test_continuing.py", "[vast", "[ssh")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Emulated machines are reached as root, through a real sshd."""
    if os.environ.get("CI") or (os.geteuid() == 0 and SSHD.exists()):
        return
    skip = pytest.mark.skip(reason=f"emulated machines need root and {SSHD} (package openssh-server)")
    for item in items:
        if item.nodeid.startswith(EMULATED) or any(part in item.nodeid for part in EMULATED_TOO):
            item.add_marker(skip)
