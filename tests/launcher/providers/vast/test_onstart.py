"""The onstart text fits Vast's field, runs under any shell, and arms the lease."""

import base64
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import LONGEST_S
from vastrun.launcher.core.errors import ProviderError
from vastrun.launcher.package_files import onstart_dir
from vastrun.launcher.providers.onstart import MAX_BYTES, onstart_text, readable_text
from vastrun.testing.setup import LEASE

LEASE_SH = onstart_dir() / "lease.sh"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Root's home on a box; its lease is ended with it."""
    yield tmp_path
    instance = f"onstart-{tmp_path.name}"
    subprocess.run(["bash", str(LEASE_SH), "end", instance, str(tmp_path / "vastrun")], check=True)


def run_onstart(home: Path, *shell: str, **env: str) -> None:
    script = home / "onstart.sh"
    script.write_text(onstart_text(LEASE_SH.read_text()))
    script.chmod(0o700)
    variables = {"HOME": str(home), "PATH": os.environ["PATH"], "CONTAINER_ID": f"onstart-{home.name}"}
    subprocess.run([*shell, str(script)], env={**variables, **LEASE, **env}, check=True, timeout=LONGEST_S)


def state_of(home: Path) -> dict[str, str]:
    deadline = time.monotonic() + 10
    path = home / "vastrun/lease.state"
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def test_a_thousand_bytes_of_the_onstart_field_stay_free() -> None:
    assert len(onstart_text(LEASE_SH.read_text()).encode()) <= MAX_BYTES - 1000


def test_a_lease_that_is_too_long_is_never_sent() -> None:
    with pytest.raises(ProviderError, match="bytes"):
        onstart_text("\n".join(str(hash(number)) * 3 for number in range(2000)))


def test_the_same_lease_is_packed_to_the_same_text_at_any_time() -> None:
    first = onstart_text(LEASE_SH.read_text())
    packed = base64.b64decode(first.split("echo ")[1].split("|")[0])
    assert onstart_text(LEASE_SH.read_text()) == first
    assert packed[4:8] == bytes(4), "gzip's time of modification"


def test_the_readable_text_has_the_whole_lease_and_the_size_of_what_is_sent() -> None:
    lease = LEASE_SH.read_text()
    text = readable_text(lease)
    assert lease in text
    assert f"{len(onstart_text(lease).encode())} bytes" in text
    assert 'export VASTRUN_INSTANCE="$CONTAINER_ID"' in text


@pytest.mark.parametrize("shell", [(), ("sh",), ("bash",)], ids=["kernel", "sh", "bash"])
def test_any_shell_arms_the_lease(home: Path, shell: tuple[str, ...]) -> None:
    run_onstart(home, *shell)
    assert state_of(home)["state"] == "armed"


def test_a_second_start_leaves_the_lease_at_work(home: Path) -> None:
    run_onstart(home)
    first = state_of(home)
    run_onstart(home)
    assert state_of(home) == first


def test_on_vast_the_lease_waits_for_its_proof(home: Path) -> None:
    run_onstart(home, VASTRUN_PROVIDER="vast", VAST_URL="http://127.0.0.1:9", CONTAINER_API_KEY="key")
    assert state_of(home)["state"] == "proving"
