"""A slot of a machine that is reached over SSH, also one of emulated Vast: every verb, once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract.held import hold
from tests.contract.markets import ssh, vast
from tests.remote_abilities import abilities_of
from tests.waiting import LONGEST_S
from vastrun.launcher.core.errors import BoxError, GoneError, UnreachableError
from vastrun.launcher.decisions.history import SpeedHistory
from vastrun.launcher.pool.provider import PoolProvider
from vastrun.launcher.ports import AllowsSsh, ChecksIdentity, Interruptible, OpensTerminal, SeesGrowth
from vastrun.testing.setup import ProviderSetup, RealClock

pytestmark = pytest.mark.needs("sshd")
LABEL = "vastrun-calm-heron-3f1a"


@pytest.mark.parametrize("below_of", [ssh, vast])
@pytest.mark.sampled(2)
def test_slot_over_ssh_keeps_the_contract(below_of: Callable[[Path], ProviderSetup], tmp_path: Path) -> None:
    below = below_of(tmp_path)
    machine = hold(below.provider, tmp_path)
    try:
        pool = PoolProvider(
            lambda: [machine.run],
            lambda _name: below.provider,
            lambda _provider, _spec: SpeedHistory(),
            clock=RealClock(),
        )
        market = ProviderSetup(provider=pool, again=lambda: pool)
        instance = pool.rent(market.order(LABEL))
        assert pool.instances() == [instance]
        remote = pool.connect(instance)
        assert abilities_of(remote) >= {ChecksIdentity, Interruptible, OpensTerminal, AllowsSsh, SeesGrowth}
        done = remote.run(
            'echo "$VASTRUN_INSTANCE $LEASE_LIFE_S"; [ "$PWD" = "$VASTRUN_BOX" ]', timeout_s=LONGEST_S
        )
        assert (done.exit_code, done.stdout) == (0, f"{instance.id} 3600\n")
        (tmp_path / "here").write_bytes(b"\0" * 100_000)
        remote.put(str(tmp_path / "here"), "inbox/there")
        assert len(remote.read("inbox/there", offset=1)) == 99_999
        remote.write("note", b"a note")
        assert remote.read("note") == b"a note"
        assert remote.run("mkfifo odd", timeout_s=LONGEST_S).exit_code == 0
        with pytest.raises(BoxError, match="cannot read odd"):
            remote.read("odd")
        with pytest.raises(UnreachableError):
            remote.run("sleep 30", timeout_s=0.5)

        pool.destroy(instance.id)

        for verb in (lambda: remote.run("true", timeout_s=LONGEST_S), lambda: remote.write("note", b"x")):
            with pytest.raises(GoneError):
                verb()
        with pytest.raises(GoneError):
            remote.read("note")
        remote.close()
        assert not pool.instances()
    finally:
        machine.end()
        below.close()
