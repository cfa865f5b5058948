"""Who is told of a batch: of its budget and of its end, each once, whoever drives it."""

from pathlib import Path

import pytest

from tests.fakebox import Training
from tests.launcher.batch.virtual_time import Killed
from tests.launcher.batch.world import NAME, SHARE_USD, BatchWorld
from tests.launcher.desk import Desk
from tests.launcher.flow.test_provider_retry import Bank
from tests.launcher.notifications.test_delivery import inbox, notified
from tests.launcher.terminal import CRASH
from vastrun.launcher.core import UserRequest
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.notifications import Notification
from vastrun.launcher.ui.render.notifications import notification_document

BUDGET_USD = 2.85 * SHARE_USD
"""Pays for four runs of a minute, one after the other: 80 % are spent in the fourth."""


class Listener:
    """Stands for Sender: remembers what it was told."""

    def __init__(self) -> None:
        self.heard: list[Notification] = []

    def check(self, spec: JobSpec) -> None:
        return

    def shown_addresses(self, spec: JobSpec) -> list[str]:
        return ["here"]

    def send(self, notification: Notification, spec: JobSpec) -> None:
        self.heard.append(notification)

    @property
    def kinds(self) -> list[str]:
        return [str(notification.kind) for notification in self.heard]


@pytest.fixture
def world(tmp_path: Path) -> BatchWorld:
    world = BatchWorld(tmp_path)
    world.notifier = Listener()
    return world


def heard(world: BatchWorld) -> Listener:
    assert isinstance(world.notifier, Listener)
    return world.notifier


def test_the_end_of_a_batch_is_told_once_and_not_that_of_each_run(world: BatchWorld) -> None:
    world.submit(5, usd=20.0)
    world.drive()
    (end,) = heard(world).heard
    said = notification_document(end)
    assert (said["event"], said["succeeded"], said["waiting"]) == ("batch_end", 5, 0)
    assert said["text"].startswith(f"batch {NAME}: it has ended\non fake: 5/5 ended")
    assert f"vastrun batch results {NAME}" in said["text"]


def test_an_end_is_told_again_only_when_something_was_begun_since(world: BatchWorld) -> None:
    world.submit(2, usd=20.0)
    world.drive()
    world.ledger.batches.reopen(NAME)
    world.drive()
    assert heard(world).kinds == ["batch_end"]
    world.submit(2, usd=30.0)
    world.drive()
    assert heard(world).kinds == ["batch_end"]
    world.submit(3, usd=30.0)
    world.drive()
    assert heard(world).kinds == ["batch_end", "batch_end"]


def test_a_budget_is_told_of_at_80_percent_and_when_it_has_no_room_left(world: BatchWorld) -> None:
    world.market.usual = Training(seconds=60.0)
    world.submit(12, usd=BUDGET_USD, parallel=1)
    world.drive()
    assert heard(world).kinds == ["batch_budget_80", "batch_budget_100", "batch_end"]
    near, full, end = heard(world).heard
    assert 0.8 <= near.usd / BUDGET_USD < 1.0
    assert notification_document(full)["text"].startswith(f"batch {NAME}: its budget is exhausted\n")
    document = notification_document(end)
    assert "not all points were started: batch widths: $" in document["text"]
    assert "and submit it again" in document["text"] and "batch resume" not in document["text"]
    assert (document["event"], document["batch"], document["limit_usd"]) == ("batch_end", NAME, BUDGET_USD)


def test_a_budget_that_was_raised_is_told_of_anew(world: BatchWorld) -> None:
    world.market.usual = Training(seconds=60.0)
    world.submit(12, usd=2 * SHARE_USD, parallel=1)
    world.drive()
    world.submit(12, usd=4 * SHARE_USD, parallel=1)
    world.drive()
    assert heard(world).kinds.count("batch_budget_100") == 2


def test_each_is_told_once_also_where_launchers_are_killed(world: BatchWorld) -> None:
    world.market.usual = Training(seconds=60.0)
    world.submit(12, usd=BUDGET_USD, parallel=1)
    for _ in range(40):
        world.time.kill_at = world.time.now() + 37.0
        try:
            world.drive()
        except Killed:
            continue
        break
    world.time.kill_at = float("inf")
    world.drive()
    assert heard(world).kinds == ["batch_budget_80", "batch_budget_100", "batch_end"]


def test_a_batch_that_goes_on_detached_has_not_ended(world: BatchWorld) -> None:
    world.market.usual = Training(seconds=60.0)
    world.submit(2, usd=20.0)

    def detach() -> None:
        world.request = UserRequest.DETACH

    world.at(30.0, detach)
    world.drive()
    assert not heard(world).heard


def test_a_webhook_hears_of_the_batch(tmp_path: Path) -> None:
    with inbox() as there:
        desk = Desk(tmp_path)
        notified(desk, f"{there.url}/hook")
        assert desk.submit()[0] == 0
    (letter,) = there.letters
    assert (letter.document["event"], letter.document["batch"]) == ("batch_end", "widths")
    assert (letter.document["succeeded"], letter.document["points"]) == (6, 6)


@pytest.mark.slow
def test_a_batchs_machine_that_cannot_be_ended_is_named_beside_its_runs_ends(tmp_path: Path) -> None:
    with inbox() as there:
        desk = Desk(tmp_path, Training(), Training(), CRASH)
        notified(desk, there.url)
        desk.file.write_text(desk.file.read_text().replace("parallel: 3", "parallel: 1"))
        desk.at(10.0, lambda: setattr(desk.market, "deaf", True))
        desk.submit()
    assert set(there.events) == {"not_destroyed"}
    assert "vastrun resume" in there.letters[0].document["text"]


def test_machines_of_a_batch_that_are_left_to_their_leases_are_told(tmp_path: Path) -> None:
    with inbox() as there:
        desk = Desk(tmp_path)
        notified(desk, there.url)
        desk.market = bank = Bank(desk.clock, [Training(seconds=600)] * 3, usd_per_hour=3.6)
        desk.at(60.0, lambda: setattr(bank, "account", None))
        desk.submit()
    assert there.events == ["out_of_reach"] * 3
    assert {letter.document["run_id"] for letter in there.letters} == {run.id for run in desk.ledger.runs()}


def test_an_address_that_is_not_set_is_told_before_anything_is_rented(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.job.write_text(desk.job.read_text() + "notify: [{url_env: NOT_SET}]\n")
    code, _, err = desk.submit()
    assert code == UsageError.exit_code and "the variable NOT_SET is not set" in err
    assert desk.market.rentals == 0
