"""Files that look like weights and are only on the machine: it is kept for a while, within all limits."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path

import pytest

from tests.fake_outputs import FakeOutputStore
from tests.fakebox import Training
from tests.fakes import PRICE
from tests.jobs import train_job
from tests.launcher.faults import (
    DISK_TROUBLES,
    PROVIDER_TROUBLES,
    REMOTE_TROUBLES,
    Fault,
    launch_killed,
)
from tests.launcher.node_world import NodeWorld
from tests.launcher.run_checks import check_nothing_leaked_and_nothing_lied, drive_to_the_end
from tests.launcher.world import RUN_ID, World
from tests.slow import slow
from vastrun.launcher.core import Cause, KeepAnswer, LeftOutFile, LeftOutFiles, Phase, Run, UserRequest
from vastrun.launcher.core.job import JobSpec, Limits
from vastrun.launcher.flow.services import Services

WEIGHTS = LeftOutFile(path="code/w.pt", why="not named in outputs", size=10**9, named=False)
COLLECT_S = 1800.0


class WatchedStore(FakeOutputStore):
    """Does something each time a launcher looks what is left out."""

    def __init__(self) -> None:
        super().__init__(not_offered=LeftOutFiles(files=(WEIGHTS,), count=1, bytes=10**9))
        self.at_a_look: Callable[[], None] = lambda: None

    def left_out(self, run: Run) -> LeftOutFiles:
        self.at_a_look()
        return super().left_out(run)


class KeptWorld(World):
    """The program left weights behind; each time is counted from the end of the training."""

    def __init__(self, folder: Path, spec: JobSpec | None = None) -> None:
        super().__init__(folder, training=Training(seconds=30), spec=spec)
        self.store = self.output_store = WatchedStore()
        self.began = self.clock.now()
        self.answer: KeepAnswer | None = None
        self.asked: list[str] = []

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do it so long after the launch."""
        self.store.at_a_look = lambda: action() if self.clock.now() > self.began + seconds else None

    def services(self, who: str | None = None) -> Services:
        return replace(super().services(who), ask_to_keep=self._answered)

    def _answered(self, files: str, settled: Callable[[], bool]) -> KeepAnswer | None:
        self.asked.append(files)
        assert not settled()
        return self.answer

    def kept_s(self) -> float:
        """Seconds between the end of the download and the end of the machine."""
        run = self.run()
        collected = next(e.at for e in self.ledger.events(RUN_ID) if e.phase is Phase.COLLECT)
        assert run.released_at is not None
        return run.released_at - collected

    def told(self) -> str:
        return "\n".join(event.text for event in self.ledger.events(RUN_ID))


def test_the_machine_is_kept_until_shortly_before_its_lease_ends_it(tmp_path: Path) -> None:
    world = KeptWorld(tmp_path)
    run = world.launch()
    assert (run.phase, run.cause) == (Phase.ENDED, None)
    assert COLLECT_S - 120 < world.kept_s() < COLLECT_S
    assert "these look like weights and are only on the machine (1.0 GB): code/w.pt" in world.told()
    assert f"vastrun pull {RUN_ID} PATH" in world.told()
    assert world.asked == ["1 file (1.0 GB)"]
    assert world.rented() == 0


def left_out(count: int, size: int) -> LeftOutFiles:
    files = tuple(replace(WEIGHTS, path=f"code/w{n}.pt", size=size) for n in range(count))
    return LeftOutFiles(files=files, count=count, bytes=count * size)


@pytest.mark.parametrize(("count", "size"), [(1, 1_300_000), (10, 10_000_000)])
def test_small_weights_are_downloaded_before_the_destroy(count: int, size: int, tmp_path: Path) -> None:
    world = KeptWorld(tmp_path)
    world.output_store.not_offered = left_out(count, size)
    assert world.launch().cause is None
    assert len(world.output_store.fetched) == count
    assert world.kept_s() < 60
    assert world.asked == []
    assert f"{count} more file{'' if count == 1 else 's'}, not named in outputs" in world.told()
    assert "look like weights" not in world.told()


@pytest.mark.parametrize(
    ("count", "size", "true_size"),
    [
        *((1, 100_000_001, None), (2, 50_000_001, None), (11, 1_000_000, None)),
        *((1, 1_000_000, 1_000_001), (1, 1_000_000, 10**12)),  # those become larger
    ],
)
def test_large_or_many_weights_are_downloaded_only_on_request(
    count: int, size: int, true_size: int | None, tmp_path: Path
) -> None:
    world = KeptWorld(tmp_path)
    world.output_store.not_offered = left_out(count, size)
    world.output_store.true_size = true_size
    world.launch()
    assert not world.output_store.fetched
    assert COLLECT_S - 120 < world.kept_s() < COLLECT_S


@pytest.mark.parametrize(("count", "more"), [(1, ""), (5, ""), (6, ", ...")])
def test_five_files_are_named_at_most_and_all_are_counted(count: int, more: str, tmp_path: Path) -> None:
    world = KeptWorld(tmp_path)
    files = tuple(replace(WEIGHTS, path=f"code/w{n}.pt", size=10**9) for n in range(count))
    log = replace(WEIGHTS, path="code/debug.log")
    world.output_store.not_offered = LeftOutFiles(files=(*files, log), count=count + 1, bytes=0)
    world.answer = KeepAnswer.GIVE_BACK
    world.launch()
    named = ", ".join(f"{file.path} (1.0 GB, not named in outputs)" for file in files[:5])
    (line,) = [text for text in world.told().splitlines() if text.startswith("these look like weights")]
    assert f"only on the machine ({count}.0 GB): {named}{more}. It is kept for 29 min, until " in line
    assert world.asked == ["1 file (1.0 GB)" if count == 1 else f"{count} files ({count}.0 GB)"]


@pytest.mark.parametrize(
    ("deadline", "zone", "name"),
    [(None, UTC, " UTC"), ("2031-01-01T18:00+05:00", timezone(timedelta(hours=5)), "")],
)
def test_the_time_until_which_it_is_kept_is_in_the_zone_of_the_deadline(
    deadline: str | None, zone: tzinfo, name: str, tmp_path: Path
) -> None:
    world = KeptWorld(tmp_path, train_job(limits=Limits(hours=12, usd=100, deadline=deadline)))
    world.answer = KeepAnswer.GIVE_BACK
    world.launch()
    began, *_ = lines = [event for event in world.ledger.events(RUN_ID) if event.phase is Phase.COLLECT]
    (line,) = [event for event in lines if event.text.startswith("these look like weights")]
    until = datetime.fromtimestamp(began.at + COLLECT_S - 60, tz=zone)
    assert f", until {until:%Y-%m-%d %H:%M}{name}; to download them: " in line.text


def test_a_launcher_that_comes_late_counts_from_the_end_of_the_training(tmp_path: Path) -> None:
    world = KeptWorld(tmp_path)
    world.user_requests.at = {world.began + 20: UserRequest.DETACH}
    world.launch()
    world.user_requests.at = {}
    world.pass_time(1500)
    run = world.resume()
    assert (run.phase, run.cause) == (Phase.ENDED, None)
    assert "It is kept for 4 min, until " in world.told()
    assert "the machine is gone, with the files that were left on it" not in world.told()
    assert world.market.bill_usd < (COLLECT_S + 60) / 3600 * PRICE


def test_a_status_that_cannot_be_read_does_not_give_the_machine_back(tmp_path: Path) -> None:
    world = KeptWorld(tmp_path)
    world.later(0, lambda: setattr(world.market, "cut_off", world.clock.now() < world.began + 60))
    assert world.launch().cause is None
    assert COLLECT_S - 120 < world.kept_s() < COLLECT_S


def test_limits_collect_s_says_how_long(tmp_path: Path) -> None:
    world = KeptWorld(tmp_path, train_job(limits=Limits(hours=12, usd=100, collect_s=300)))
    assert world.launch().cause is None
    assert 180 < world.kept_s() < 300


def test_it_ends_as_soon_as_all_is_downloaded_and_the_proofs_say_so(tmp_path: Path) -> None:
    world = KeptWorld(tmp_path)
    world.later(300, lambda: world.store.fetched.add(WEIGHTS.path))
    run = world.launch()
    assert run.cause is None
    assert world.kept_s() < 400
    assert "all files that look like weights are downloaded" in world.told()
    (proof,) = [proof for proof in run.proofs if proof.name == "outputs"]
    assert proof.text == "all outputs downloaded, checksums match"


@pytest.mark.parametrize("request_", [UserRequest.STOP, UserRequest.DESTROY, UserRequest.PRUNE])
def test_a_stop_gives_the_machine_back_and_keeps_the_success(request_: UserRequest, tmp_path: Path) -> None:
    world = KeptWorld(tmp_path)
    world.user_requests.at = {world.began + 300: request_}
    run = world.launch()
    assert (run.phase, run.cause) == (Phase.ENDED, None)
    assert world.kept_s() < 400
    assert world.rented() == 0


@pytest.mark.parametrize(
    ("answer", "fetched"), [(KeepAnswer.DOWNLOAD, {WEIGHTS.path}), (KeepAnswer.GIVE_BACK, set())]
)
def test_the_user_may_end_the_wait_at_once(answer: KeepAnswer, fetched: set[str], tmp_path: Path) -> None:
    world = KeptWorld(tmp_path)
    world.answer = answer
    assert world.launch().cause is None
    assert world.store.fetched == fetched
    assert world.kept_s() < 60


def test_a_download_that_fails_is_told_and_the_machine_kept(tmp_path: Path) -> None:
    world = KeptWorld(tmp_path)
    world.answer = KeepAnswer.DOWNLOAD
    world.expect(Fault(verb="output_store.fetch", nth=1, moment="before", trouble="unreachable"))
    assert world.launch().cause is None
    assert "the files could not be downloaded" in world.told()
    assert world.kept_s() > COLLECT_S - 120


def test_a_detach_leaves_it_and_the_next_launcher_waits_no_longer_for_that(tmp_path: Path) -> None:
    world = KeptWorld(tmp_path)
    world.user_requests.at = {world.began + 300: UserRequest.DETACH}
    assert world.launch().phase is Phase.COLLECT
    world.user_requests.at = {}
    world.pass_time(600)
    run = world.resume()
    assert (run.phase, run.cause) == (Phase.ENDED, None)
    assert COLLECT_S - 120 < world.kept_s() < COLLECT_S


def test_a_launcher_that_is_killed_meanwhile_does_not_lengthen_it(tmp_path: Path) -> None:
    world = KeptWorld(tmp_path)
    launch_killed(world, "output_store.left_out", "after", nth=20)
    world.pass_time(900)
    assert world.resume().cause is None
    assert COLLECT_S - 120 < world.kept_s() < COLLECT_S


def test_a_machine_that_is_lost_meanwhile_is_no_failure_of_the_run(tmp_path: Path) -> None:
    world = KeptWorld(tmp_path)
    world.later(300, world.market.vanish)
    run = world.launch()
    assert (run.phase, run.cause) == (Phase.ENDED, None)
    assert "the machine is gone, with the files that were left on it" in world.told()


@pytest.mark.parametrize(
    "limits", [Limits(hours=0.25, usd=100), Limits(hours=12, usd=0.3 * PRICE)], ids=["hours", "money"]
)
def test_a_limit_ends_it_and_not_the_success_of_the_run(limits: Limits, tmp_path: Path) -> None:
    world = KeptWorld(tmp_path, train_job(limits=limits))
    run = world.launch()
    assert (run.phase, run.cause) == (Phase.ENDED, None)
    assert world.kept_s() < COLLECT_S - 300
    assert world.rented() == 0


@pytest.mark.parametrize(
    "file", [replace(WEIGHTS, size=10_000), replace(WEIGHTS, path="code/debug.log")], ids=["small", "log"]
)
def test_for_other_files_it_is_not_kept(file: LeftOutFile, tmp_path: Path) -> None:
    world = KeptWorld(tmp_path)
    world.output_store.not_offered = LeftOutFiles(files=(file,), count=1)
    assert world.launch().cause is None
    assert world.kept_s() < 60


def test_of_a_run_that_its_batch_ended_nothing_is_kept(tmp_path: Path) -> None:
    world = KeptWorld(tmp_path)
    world.user_requests.at = {world.began + 20: UserRequest.PRUNE}
    assert world.launch().cause is Cause.PRUNED
    assert world.kept_s() < 60


@pytest.mark.parametrize("nth", [1, *slow((3,), (40,))])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    ("verb", "trouble"),
    [
        *(("output_store.left_out", trouble) for trouble in DISK_TROUBLES),
        *(("remote.read", trouble) for trouble in REMOTE_TROUBLES),
        *(("provider.instances", trouble) for trouble in PROVIDER_TROUBLES),
        *(("ledger.hold", trouble) for trouble in ("no space", "killed")),
    ],
)
@pytest.mark.sampled(5)
def test_a_fault_meanwhile_leaves_nothing_rented_and_no_false_verdict(
    verb: str, trouble: str, moment: str, nth: int, tmp_path: Path
) -> None:
    world = KeptWorld(tmp_path)
    world.expect(Fault(verb=verb, nth=nth, moment=moment, trouble=trouble))  # type: ignore[arg-type]
    run: Run | None = drive_to_the_end(world)
    check_nothing_leaked_and_nothing_lied(world, run)


def test_machines_of_several_nodes_are_kept_without_a_question(tmp_path: Path) -> None:
    world = NodeWorld(tmp_path)
    left = LeftOutFiles(files=(WEIGHTS,), count=1, bytes=10**9)
    world.stores[RUN_ID] = FakeOutputStore(not_offered=left)
    run = world.launch()
    assert run.cause is None, world.told
    (kept,) = [event for event in world.ledger.events(RUN_ID) if event.text.startswith("these look like")]
    assert run.released_at is not None
    assert 600 < run.released_at - kept.at < COLLECT_S, "until the node's share of the money is spent"
