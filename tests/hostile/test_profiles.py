"""Whatever a box answers to `vastrun profile`: nothing evil is kept, and the command ends in time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakebox import Training
from tests.fakes import PRICE, FakeClock, FakeRemote
from tests.hostile.boxes import READ_S, TRICKLE_S
from tests.hostile.lie import Content
from tests.hostile.profiles import PROFILE_LIES, ProfileLie
from tests.hostile.test_lies import assert_no_crash
from tests.launcher.terminal import Market, Terminal
from vastrun.contract import layout
from vastrun.launcher.core import Instance
from vastrun.launcher.ports import Remote

TIMEOUT_S = 60.0
HONEST = Training(seconds=1e5, steps=10**6)


class ProfilingMarket(Market):
    """Its boxes tell `lie` when a profile is requested."""

    def __init__(self, clock: FakeClock, lie: ProfileLie) -> None:
        super().__init__(clock, [HONEST], usd_per_hour=PRICE)
        self.lie = lie

    def connect(self, instance: Instance) -> Remote:
        return LyingRemote(self, instance.id)


class LyingRemote(FakeRemote):
    """A shell on a box that lies about its profiles."""

    _provider: ProfilingMarket

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        content = self._lie_about(path)
        if content is None:
            return super().read(path, offset=offset, limit=limit)
        self._provider.clock.sleep(TRICKLE_S if callable(content) else READ_S)
        return content(offset, limit) if callable(content) else content[offset : offset + limit]

    def _lie_about(self, path: str) -> Content | None:
        lie = self._provider.lie
        if path.startswith(f"{layout.PROFILES}/trace-"):
            return lie.trace
        if path != layout.PROFILE_RESPONSE:
            return None
        honest = json.loads(super().read(path) or b"{}")
        return lie.written if lie.written is not None else json.dumps(honest | dict(lie.response)).encode()


@pytest.mark.parametrize("name", PROFILE_LIES)
def test_a_lie_about_a_profile_comes_to_a_good_end(name: str, tmp_path: Path) -> None:
    lie = PROFILE_LIES[name]
    terminal = Terminal(tmp_path)
    terminal.market = ProfilingMarket(terminal.clock, lie)
    terminal.launch("--detach")
    began = terminal.clock.now()

    end = terminal.type("profile", "last", "--timeout", f"{TIMEOUT_S:.0f}")

    assert_no_crash(end)
    assert (end.exit_code == 0) is lie.harmless, end.stderr
    assert len(end.stderr) < 2000
    assert terminal.clock.now() - began < TIMEOUT_S + 2 * TRICKLE_S
    assert terminal.machines() == 1
    kept = {path.name for path in tmp_path.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"evil"}
    assert kept == set()
    assert not list(tmp_path.rglob("*.part"))
