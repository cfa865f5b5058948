"""What a watching launcher does about checkpoints, and the run that continues from them elsewhere."""

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fake_outputs import FakeOutputStore
from tests.fakebox import Training
from tests.fakes import FakeClock
from tests.jobs import train_job
from tests.launcher.faults import Fault
from tests.launcher.world import World
from vastrun.launcher.bundle import Bundler
from vastrun.launcher.commands.attempts import Attempts
from vastrun.launcher.commands.explanation import explain
from vastrun.launcher.core import CheckpointCopy, Origin, Run, UserRequest, bills
from vastrun.launcher.core.errors import NoRoomError, StorageError
from vastrun.launcher.core.verdict import VERDICT_OF
from vastrun.launcher.flow.live_download import METRICS_INTERVAL_S, LiveDownloads, next_slice_bytes
from vastrun.launcher.flow.services import Services
from vastrun.launcher.gate.caps import METRICS_SLICE_BYTES
from vastrun.launcher.outputs.store import FolderStore
from vastrun.launcher.ports import Remote


def told(world: World) -> list[str]:
    return [event.text for event in world.screen.events]


def test_new_checkpoints_are_home_before_the_training_is_over(tmp_path: Path) -> None:
    world = World(tmp_path, training=Training(seconds=40.0))
    run = world.launch()
    assert run.cause is None
    assert [text.split(",")[0] for text in told(world) if text.startswith("checkpoint")] == [
        "checkpoint step-000004 downloaded",
        "checkpoint step-000008 downloaded",
    ]


@pytest.mark.parametrize(
    ("copy", "rest_s"),
    [
        (None, 5.0),
        (CheckpointCopy(name="step-000004", size=2, held=2), 9.0),
        (CheckpointCopy(name="step-000004", size=2, held=1, damaged=True), 9.0),
        (CheckpointCopy(name="step-000004", size=2, held=1), 0.0),
    ],
    ids=["nothing new", "whole", "damaged", "a part"],
)
def test_after_a_look_or_a_copy_the_line_rests_nine_times_as_long_and_5_seconds_at_least(
    copy: CheckpointCopy | None, rest_s: float
) -> None:
    saving = LiveDownloads()
    seconds = 0.25 if copy is None else 1.0
    saving.note(copy, 100.0, 100.0 + seconds)
    ends_at = 100.0 + seconds + rest_s
    assert saving.is_due(ends_at)
    assert saving.is_due(0.0), "a clock that was set back delays nothing"
    assert saving.is_due(ends_at - 0.1) is (rest_s == 0)
    assert saving.got_slice is (copy is not None)
    assert (saving.began_at, saving.received_bytes) == ((100.0, 1) if rest_s == 0 else (None, 0))


@pytest.mark.parametrize(
    ("limit", "moved", "seconds", "next_"),
    [
        (1 << 20, 1 << 20, 0.5, 1 << 20),
        (1 << 20, 1 << 20, 0.25, 2 << 20),
        (1 << 20, 1 << 20, 0.1, 4 << 20),
        (1 << 24, 1 << 25, 0.25, 1 << 25),
        (1 << 20, 1000, 0.0, 500_000),
        (1 << 20, 1000, 0.5, 1 << 16),
    ],
    ids=["as planned", "faster", "four times at once", "the most", "no time", "the least"],
)
def test_the_next_slice_takes_half_a_second_within_limits(
    limit: int, moved: int, seconds: float, next_: int
) -> None:
    assert next_slice_bytes(limit, moved, seconds) == next_
    saving = LiveDownloads(limit=limit, received_bytes=7)
    saving.note(CheckpointCopy(name="step-000004", size=1 << 30, held=7 + moved), 100.0, 100.0 + seconds)
    assert saving.limit == next_
    assert LiveDownloads().limit == 1 << 18


@pytest.mark.parametrize("what", ["checkpoint", "metrics"])
@pytest.mark.parametrize("trouble", ["no space", "error"])
def test_what_cannot_come_is_told_once_and_hurts_nothing(trouble: str, what: str, world: World) -> None:
    verb = f"output_store.download_{what}"
    world.expect(Fault(verb=verb, nth=1, moment="before", trouble=trouble, times=99))
    run = world.launch()
    assert run.cause is None
    told_of = f"{what.removesuffix('s')}s stay on the machine"
    assert len([text for text in told(world) if told_of in text]) == 1
    if (trouble, what) == ("error", "metrics"):
        assert world.plan.calls[verb] == 1


@pytest.mark.parametrize("error", [NoRoomError, StorageError])
def test_checkpoints_wait_for_room_on_this_computer(error: type[StorageError], tmp_path: Path) -> None:
    class FullDisk(FakeOutputStore):
        def download_checkpoint(self, run: Run, remote: Remote, *, limit: int) -> CheckpointCopy | None:
            if world.clock.now() < room_at:
                raise error("the disk has 0 MB free")
            return super().download_checkpoint(run, remote, limit=limit)

    world = World(tmp_path, training=Training(seconds=400))
    room_at = world.clock.now() + 200
    world.output_store = FullDisk()

    assert world.launch().cause is None

    lines = [text for text in told(world) if text.startswith("checkpoint")]
    assert [line.partition(": ")[0].split(",")[0] for line in lines] == [
        "checkpoints stay on the machine until this computer's disk takes them",
        "checkpoint step-000004 downloaded",
        "checkpoint step-000008 downloaded",
    ]


class Metrics(FakeOutputStore):
    """Remembers when metrics were fetched, and what was there by then; refuses them until `room_at`."""

    def __init__(
        self, clock: FakeClock, *, room_at: float = 0.0, error: type[StorageError] = NoRoomError
    ) -> None:
        super().__init__()
        self._clock, self._room_at, self._error = clock, room_at, error
        self.looks: list[tuple[float, int]] = []

    def download_metrics(self, run: Run, remote: Remote) -> int:
        if self._clock.now() < self._room_at:
            raise self._error("the disk has 0 MB free")
        brought = super().download_metrics(run, remote)
        self.looks.append((self._clock.now(), brought))
        return brought


def test_metrics_are_home_while_the_training_goes_on_and_are_asked_for_every_few_seconds(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, training=Training(seconds=100, steps=100), spec=train_job(steps=100))
    store = world.output_store = Metrics(world.clock)
    assert world.launch().cause is None
    moments = [at for at, _ in store.looks]
    assert 15 <= len(moments) <= 21
    assert min(later - former for former, later in itertools.pairwise(moments)) >= METRICS_INTERVAL_S
    assert sum(brought > 0 for _, brought in store.looks) >= 15


class FullSlices(Metrics):
    """Has two slices of metrics that were full, then one that is just not."""

    def download_metrics(self, run: Run, remote: Remote) -> int:
        super().download_metrics(run, remote)
        half = METRICS_SLICE_BYTES // 2
        return (half + 1, half + 1, half)[min(2, len(self.looks) - 1)]


def test_after_a_full_slice_of_metrics_the_next_one_follows_at_once(tmp_path: Path) -> None:
    world = World(tmp_path, training=Training(seconds=30, steps=30), spec=train_job(steps=30))
    store = world.output_store = FullSlices(world.clock)
    assert world.launch().cause is None
    pauses = [later - former for (former, _), (later, _) in itertools.pairwise(store.looks)]
    assert max(pauses[:2]) < METRICS_INTERVAL_S <= min(pauses[2:])


@pytest.mark.parametrize(("error", "reported"), [(NoRoomError, 0), (StorageError, 1)])
def test_metrics_wait_for_the_disk_of_this_computer(
    error: type[StorageError], reported: int, tmp_path: Path
) -> None:
    world = World(tmp_path, training=Training(seconds=200, steps=200), spec=train_job(steps=200))
    store = world.output_store = Metrics(world.clock, room_at=world.clock.now() + 100, error=error)
    assert world.launch().cause is None
    assert store.looks[0][1] > 0
    assert len([text for text in told(world) if text.startswith("metrics stay on the machine")]) == reported


def test_a_stop_waits_for_no_checkpoint(tmp_path: Path) -> None:
    world = World(tmp_path, training=Training(seconds=600, checkpoint_every=1))
    world.user_requests.at = {world.clock.now() + 5: UserRequest.STOP}
    world.launch()
    assert world.plan.calls["output_store.download_checkpoint"] == 1


class SlowLine(FakeOutputStore):
    """Brings one checkpoint of 50 MB at 1 MB/s, and remembers when the log was pumped."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock
        self._held = 0
        self.pumped_at: list[float] = []

    def download_log(self, run: Run, remote: Remote) -> str:
        self.pumped_at.append(self._clock.now())
        return super().download_log(run, remote)

    def download_checkpoint(self, run: Run, remote: Remote, *, limit: int) -> CheckpointCopy | None:
        new = min(limit, 50_000_000 - self._held)
        self._clock.sleep(new / 1e6)
        self._held += new
        return CheckpointCopy(name="step-000004", size=50_000_000, held=self._held)


def test_the_log_is_served_every_second_while_a_large_checkpoint_comes(tmp_path: Path) -> None:
    world = World(tmp_path, training=Training(seconds=90))
    line = world.output_store = SlowLine(world.clock)
    run = world.launch()
    assert run.cause is None
    assert any("50.0 MB" in text for text in told(world))
    assert max(later - former for former, later in itertools.pairwise(line.pumped_at)) <= 1.1


def test_the_log_says_how_old_a_checkpoint_is_and_that_older_ones_are_missing(tmp_path: Path) -> None:
    class TwoSlices(FakeOutputStore):
        def download_checkpoint(self, run: Run, remote: Remote, *, limit: int) -> CheckpointCopy | None:
            return next(slices, None)

    world = World(tmp_path, training=Training(seconds=90))
    now, whole_copy = world.clock.now(), CheckpointCopy(name="step-000004", size=9_000_000, held=9_000_000)
    slices = iter(
        [
            replace(whole_copy, held=6_000_000, is_usable=True, taken_at=now - 1000),
            replace(whole_copy, taken_at=now + 1000),
        ]
    )
    world.output_store = TwoSlices()
    world.launch()
    usable, whole = (text for text in told(world) if text.startswith("checkpoint"))
    assert re.fullmatch("checkpoint step-000004 usable, 6.0 MB, 10.. s old; older checkpoints follow", usable)
    assert re.fullmatch("checkpoint step-000004 downloaded, 9.0 MB, [0-9] s old", whole)


class Desk:
    """Attempts on a fake market, with real folders at home."""

    def __init__(self, folder: Path, *causes: str) -> None:
        self.world = World(folder)
        self.spec = train_job(retry=dict.fromkeys(causes, 1))
        self.folder = folder
        self.shipped: list[str] = []
        """The checkpoint that each machine was given to continue from."""

    def launch(self) -> list[Run]:
        """All runs, the oldest first."""
        numbers = itertools.count(1)
        attempts = Attempts(services_for=self._services_for, new_id=lambda: f"calm-heron-000{next(numbers)}")
        run = attempts.start(
            self.spec, provider="fake", run_id="calm-heron-0000", out_dir=str(self.folder / "out")
        )
        attempts.drive_to_end(run)
        return sorted(self.world.ledger.runs(), key=lambda run: run.id)

    def _services_for(self, provider: str, origin: Origin) -> Services:
        if origin.folder is not None:
            self.shipped.append(json.loads((origin.folder / "latest.json").read_text())["path"])
        services = self.world.services("desk:1:0")
        return replace(services, output_store=FolderStore(), packer=Bundler({}, origin=origin))


LOST = (Fault(verb="remote.run", nth=18, moment="before", trouble="vanish"),)
PREEMPTED = (
    Fault(verb="remote.run", nth=18, moment="before", trouble="unreachable"),
    Fault(verb="provider.connect", nth=2, moment="before", trouble="outbid", times=2),
)


@pytest.mark.parametrize(("cause", "faults"), [("lost", LOST), ("preempted", PREEMPTED)])
def test_a_machine_that_went_away_is_followed_by_one_that_continues_after_the_saved_step(
    cause: str, faults: tuple[Fault, ...], tmp_path: Path
) -> None:
    desk = Desk(tmp_path, "lost", "preempted")
    desk.world.expect(*faults)

    first, second = desk.launch()

    assert first.cause == cause
    assert desk.shipped == ["step-000004"]
    here = explain(desk.world.ledger, first, desk.world.clock.now()).home
    assert re.fullmatch(r"step-000004 downloaded, 0.0 MB, \d min before the run ended", here)
    assert VERDICT_OF[second.cause] == "SUCCEEDED"
    assert second.parent == first.id
    assert desk.world.rented() == 0
    spent = sum(bills.cost_usd(run, desk.world.clock.now()) for run in (first, second))
    assert spent == pytest.approx(desk.world.market.bill_usd, rel=0.2)
    assert (Path(second.out_dir) / "checkpoints" / "step-000010" / "state.pt").is_file()
