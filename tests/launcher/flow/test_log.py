"""The log of a run while somebody reads along."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import ClassVar

import pytest

from tests.fakebox import Training
from tests.fakes import BoxHost, FakeRemote
from tests.launcher.world import World
from vastrun.contract import layout


class CountingRemote(FakeRemote):
    """Counts what its machine is asked."""

    asked: ClassVar[Counter[str]] = Counter()

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        self.asked[f"read {path}"] += 1
        return super().read(path, offset=offset, limit=limit)


class SeeingRemote(CountingRemote):
    """Sees a file grow."""

    def __init__(self, provider: BoxHost, instance_id: str) -> None:
        super().__init__(provider, instance_id)
        self._read_to: dict[str, int] = {}

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        content = super().read(path, offset=offset, limit=limit)
        self._read_to[path] = offset + len(content)
        return content

    def has_grown(self, path: str) -> bool | None:
        if path not in self._read_to:
            return None
        return len(FakeRemote.read(self, path)) > self._read_to[path]


def reads_of_the_log(folder: Path, remote: type[CountingRemote], runs: int) -> tuple[str, int]:
    """What was shown of a training that prints a line now and then, and how often its log was read."""
    world = World(folder, training=Training(seconds=60.0))
    world.market.remote_type, remote.asked = remote, Counter()
    world.active_runs = runs
    assert world.launch().cause is None
    return world.screen.logs, remote.asked[f"read {layout.LOG}"]


@pytest.mark.parametrize(("runs", "is_quieter"), [(1, True), (100, False)])
def test_a_machine_whose_log_is_seen_to_grow_is_not_asked_in_between(
    tmp_path: Path, runs: int, is_quieter: bool
) -> None:
    shown, reads = reads_of_the_log(tmp_path, CountingRemote, runs)
    shown_too, fewer = reads_of_the_log(tmp_path, SeeingRemote, runs)
    assert shown_too.count("\n") == shown.count("\n") > 5
    assert (fewer < reads, fewer == reads) == (is_quieter, not is_quieter)
