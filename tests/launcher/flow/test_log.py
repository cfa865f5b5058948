"""The log of a run while somebody reads along."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import pytest

from tests.fakebox import Training
from tests.fakes import BoxHost, FakeClock, FakeProvider, FakeRemote
from tests.launcher.world import World
from vastrun.contract import layout
from vastrun.launcher.core import Instance


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


STEP_S = 3.3
"""Seconds of each step before the training: no multiple of the seconds between two polls."""


def test_log_that_is_seen_to_grow_before_the_training_does_not_wait_for_the_next_poll(tmp_path: Path) -> None:
    steps = ("10-check-gpu", "25-packages", "40-data")
    world = World(tmp_path, training=Training(before_s=dict.fromkeys(steps, STEP_S)))
    world.market.remote_type = SeeingRemote
    assert world.launch().cause is None
    shown_at = [event.at for event in world.screen.events if event.text in (*steps, "50-train")]
    assert [after - before for before, after in pairwise(shown_at)] == [
        pytest.approx(STEP_S, abs=0.25) for _ in steps
    ]


class BusyMarket(FakeProvider):
    """Notes when all machines are listed."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock, training=Training(seconds=30.0))
        self.listed_at: list[float] = []

    def instances(self) -> Sequence[Instance]:
        self.listed_at.append(self.clock.now())
        return super().instances()


def test_the_first_lines_of_a_log_do_not_wait_for_a_list_of_machines(world: World) -> None:
    world.market = market = BusyMarket(world.clock)
    assert world.launch().cause is None
    began_at = next(event.at for event in world.screen.events if event.text == "50-train")
    while_it_trains = [at - began_at for at in market.listed_at if at >= began_at]
    assert while_it_trains, "its cost is read while it trains"
    assert while_it_trains[0] >= 5.0
