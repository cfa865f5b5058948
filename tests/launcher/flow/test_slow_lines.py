"""A machine that sends its files byte by byte: its status is seen, and the run ends as it would have."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakebox import FakeBox, Training
from tests.fakes import PRICE, FakeRemote
from tests.jobs import train_job
from tests.launcher.world import World
from vastrun.contract import layout
from vastrun.launcher.core import Cause, CommandResult
from vastrun.launcher.core.errors import UnreachableError
from vastrun.launcher.core.job import Limits
from vastrun.launcher.flow.services import Services
from vastrun.launcher.gate.caps import READ_S
from vastrun.launcher.outputs.checkpoints import LATEST, MANIFEST
from vastrun.launcher.outputs.store import FolderStore

Rate = Callable[[FakeBox, str], float]
"""Bytes a second of a file of the box."""
FAST = 1e9
WEIGHTS = f"{layout.OUTPUTS}/weights.pt"


class SlowWorld(World):
    """A world with real folders, whose machines answer commands at once and send files at a rate."""

    def __init__(self, folder: Path, rate: Rate, training: Training, *, hours: float = 30.0) -> None:
        limits = Limits(hours=hours, usd=3.0 * hours)
        super().__init__(folder, training=training, spec=train_job(steps=training.steps, limits=limits))
        self.out_dir, world = str(folder / "out"), self
        self.status_at: list[float] = []
        self.output_store = FolderStore(now=self.clock.now)  # type: ignore[assignment]
        self.breaks_at: list[float] = []
        """Moments at which the connection breaks."""

        class SlowRemote(FakeRemote):
            """A shell over the slow line. Its waits are interrupted once a second, as those of SSH."""

            _check: Callable[[], None] = staticmethod(lambda: None)

            def set_interrupt_check(self, check: Callable[[], None]) -> None:
                self._check = check

            def abort(self) -> None: ...

            def run(self, command: str, *, timeout_s: float) -> CommandResult:
                if command == "bash onstart/status.sh":
                    world.status_at.append(world.clock.now())
                return super().run(command, timeout_s=timeout_s)

            def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
                content = super().read(path, offset=offset, limit=limit)
                bytes_per_s = rate(self._box(), path)
                arrived = content[: 1 + int(READ_S * bytes_per_s)]
                wait_s = len(arrived[:1]) / bytes_per_s
                while wait_s > 0:
                    world.clock.sleep(min(1.0, wait_s))
                    wait_s -= 1.0
                    self._check()
                world.clock.sleep(len(arrived[1:]) / bytes_per_s)
                if world.breaks_at and world.clock.now() > world.breaks_at[0]:
                    world.breaks_at.pop(0)
                    raise UnreachableError("the connection broke")
                return arrived

        self.market.remote_type = SlowRemote

    def services(self, who: str | None = None) -> Services:
        return replace(super().services(who), provider=self.market)

    @property
    def longest_gap_s(self) -> float:
        """Longest time between two statuses."""
        return max(later - former for former, later in itertools.pairwise(self.status_at))


def training(seconds: float, **changes: Any) -> Training:
    return Training(seconds=seconds, steps=50, checkpoint_every=10, **changes)


def while_it_trains(bytes_per_s: float) -> Rate:
    return lambda box, _path: bytes_per_s if box.started_at and not box.ended_at else FAST


@pytest.mark.slow
@pytest.mark.parametrize(("bytes_per_s", "seconds"), [(100, 8000), (10, 50_000)])
def test_a_run_over_a_slow_line_ends_as_usual(bytes_per_s: float, seconds: float, tmp_path: Path) -> None:
    world = SlowWorld(tmp_path / "slow", lambda _box, _path: bytes_per_s, training(seconds))
    world.active_runs = 60  # polls are 5 s apart
    run = world.launch()
    assert run.cause is None, run.detail
    assert world.longest_gap_s <= 10
    assert world.market.bill_usd == pytest.approx(PRICE * seconds / 3600, rel=0.02)


def test_a_checkpoint_comes_slice_by_slice_over_a_slow_line(tmp_path: Path) -> None:
    world = SlowWorld(tmp_path, while_it_trains(100), training(1000))
    world.launch()
    assert "checkpoint step-000010 downloaded, 0.0 MB" in [event.text for event in world.screen.events]


@pytest.mark.parametrize("path", [layout.LOG, layout.METRICS, layout.EXIT, LATEST, MANIFEST])
def test_one_file_that_never_comes_delays_no_status(path: str, tmp_path: Path) -> None:
    def rate(box: FakeBox, read: str) -> float:
        return 0.001 if read.endswith(path) and not box.ended_at else FAST

    world = SlowWorld(tmp_path, rate, training(200))

    assert world.launch().cause is None
    assert world.longest_gap_s <= 10


def test_outputs_are_collected_as_long_as_they_come_over_a_line_that_breaks(tmp_path: Path) -> None:
    outputs = {f"{layout.OUTPUTS}/{number}.bin": bytes([number]) * 10_000 for number in range(8)}
    world = SlowWorld(
        tmp_path, lambda box, _path: 100 if box.ended_at else FAST, training(60, leaves=outputs)
    )
    world.breaks_at = [world.clock.now() + moment for moment in range(100, 2000, 100)]
    run = world.launch()
    assert run.cause is None, run.detail
    assert world.clock.now() > run.created_at + 800


def test_outputs_that_trickle_are_given_up_when_the_lease_would_have_ended(tmp_path: Path) -> None:
    trains = training(60, leaves={WEIGHTS: bytes(100_000)}, obeys=False)
    world = SlowWorld(tmp_path, lambda _box, path: 1 if path == WEIGHTS else FAST, trains)
    run = world.launch()
    assert run.cause is Cause.HOST
    assert world.rented() == 0
    assert world.market.bill_usd <= 2300 / 3600 * PRICE


@pytest.mark.parametrize("path", [layout.OUTCOME, layout.STEPS])
def test_evidence_that_trickles_is_given_up(path: str, tmp_path: Path) -> None:
    trains = training(60, obeys=False)
    world = SlowWorld(tmp_path, lambda _box, read: 0.02 if read == path else FAST, trains)
    run = world.launch()
    assert run.cause is Cause.HOST
    assert world.rented() == 0
    assert world.market.bill_usd <= 4500 / 3600 * PRICE
