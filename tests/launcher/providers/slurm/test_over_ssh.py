"""A cluster whose login node is another computer: over SSH, by the host key that the user wrote down."""

import getpass
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.ready import Ready
from tests.emulators.slurm import shared
from tests.emulators.sshd import Sshd
from tests.remote_abilities import abilities_of
from tests.waiting import LONGEST_S
from vastrun.launcher.core.errors import AuthError, HostKeyError, UsageError
from vastrun.launcher.core.settings import SlurmSettings
from vastrun.launcher.ports import AllowsSsh, ChecksIdentity, Interruptible, OpensTerminal, SeesGrowth
from vastrun.launcher.providers.slurm import SlurmProvider
from vastrun.launcher.ssh.keys import KeyRing
from vastrun.testing.setup import ProviderSetup, RealClock


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    """The login node's. The profile of its user is talkative, and says where Slurm is."""
    with Sshd(tmp_path / "sshd") as sshd:
        sshd.home.joinpath(".bash_profile").write_text("echo Welcome to the lab; echo Be nice >&2\n")
        yield sshd


def cluster_at(sshd: Sshd, folder: Path, **changes: str | None) -> SlurmProvider:
    host, port = sshd.address
    keys = KeyRing(folder / "keys")
    settings: dict[str, Any] = {
        "login": f"{getpass.getuser()}@{host}:{port}",
        "host_key": sshd.fingerprint,
        "key": str(keys.pair("mine").private_path),
        "python": "python3",
    } | changes
    return SlurmProvider(SlurmSettings(**settings), folder / "state", {}, "python3", clock=RealClock())


@pytest.mark.needs("slurm", "ssh")
def test_a_job_is_made_reached_and_ended_over_ssh(sshd: Sshd, tmp_path: Path) -> None:
    with sshd.home.joinpath(".bash_profile").open("a") as profile:
        profile.write(f"export SLURM_CONF={shared().variables['SLURM_CONF']}\n")
    provider = cluster_at(sshd, tmp_path)
    sshd.authorize(KeyRing(tmp_path / "keys").pair("mine").public)
    market = ProviderSetup(provider=Ready(provider), again=lambda: provider)
    instance = market.provider.rent(market.order("vastrun-calm-heron-3f1a"))
    remote = provider.connect(instance)
    # Its host key is the login node's: of the job's node nothing is known.
    assert abilities_of(remote) >= {Interruptible, OpensTerminal, AllowsSsh, SeesGrowth}
    assert ChecksIdentity not in abilities_of(remote)
    try:
        remote.write("inbox/note", b"from afar")
        done = remote.run("cat inbox/note; echo $SLURM_JOB_ID >&2; exit 3", timeout_s=LONGEST_S)
        assert (done.exit_code, done.stdout) == (3, "from afar")
        assert done.stderr.strip().isdecimal()
        assert remote.read("inbox/note", offset=5) == b"afar"
        program = remote.terminal("cat inbox/note")
        shown = subprocess.run(program.argv, capture_output=True, text=True, timeout=LONGEST_S)
        assert shown.stdout.endswith("from afar"), shown.stderr
    finally:
        remote.close()
        provider.destroy(instance.id)
    assert provider.instances() == []


def test_another_host_key_than_the_user_s_is_refused(sshd: Sshd, tmp_path: Path) -> None:
    other = "SHA256:" + "A" * 43
    with pytest.raises(HostKeyError, match="host key") as caught:
        cluster_at(sshd, tmp_path, host_key=other).instances()
    assert "slurm.host_key" in caught.value.hint


def test_a_key_that_is_not_accepted_is_no_answer(sshd: Sshd, tmp_path: Path) -> None:
    with pytest.raises(AuthError, match="rejects your key"):
        cluster_at(sshd, tmp_path).instances()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"login": "host"}, "expected USER@HOST"),
        ({"login": "a@b:99999"}, "expected USER@HOST"),
        ({"key": "/none"}, "no file"),
        ({"host_key": None}, "host_key is not set"),
    ],
)
def test_settings_that_name_no_login_node_are_refused(
    changes: dict[str, str | None], said: str, sshd: Sshd, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=said):
        cluster_at(sshd, tmp_path, **changes).instances()
