"""Runs that are left to the background, as far as no process is started, and how `status` shows them."""

import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakebox import Training
from tests.launcher.terminal import Terminal
from vastrun.launcher.api.drivers import DriverFolder, Target
from vastrun.launcher.app import App
from vastrun.launcher.cli import background
from vastrun.launcher.commands.queries import row_of, with_download
from vastrun.launcher.config import read_job
from vastrun.launcher.core import BoxStatus, Driver, Run
from vastrun.launcher.core.batch import Batch, BatchSpec
from vastrun.launcher.core.errors import AuthError, StorageError
from vastrun.launcher.ledger.presence import Presence

NAMES = ("calm-heron-3f1a", "process 42, log /x.log")


@pytest.fixture
def left(tmp_path: Path) -> Terminal:
    """A terminal whose run was detached, and that no launcher drives."""
    terminal = Terminal(tmp_path, Training(seconds=600.0))
    terminal.launch("--detach")
    return terminal


def run_of(terminal: Terminal) -> Run:
    (run,) = terminal.ledger.runs()
    return run


def with_drivers(terminal: Terminal, folder: Path | None) -> App:
    return terminal.app().with_changes(drivers=folder)


def app_of(terminal: Terminal) -> App:
    return with_drivers(terminal, terminal.folder / "drivers")


def hold(terminal: Terminal) -> None:
    until = terminal.clock.now() + 600
    terminal.ledger.hold(run_of(terminal).id, Driver(who="attic:7:1.0", until=until))


def dead_driver(terminal: Terminal, error: Exception | None = None) -> DriverFolder:
    """The folder with the record of a driver that died, or gave up."""
    folder = terminal.folder / "drivers"
    folder.mkdir()
    with suppress(AuthError), DriverFolder(folder).claim(Target("run", run_of(terminal).id)):
        if error is not None:
            raise error
    return DriverFolder(folder)


def test_a_server_of_the_team_that_takes_the_run_is_named(left: Terminal) -> None:
    left.at(6.0, lambda: hold(left))
    app = app_of(left)
    app = app.with_changes(computer=lambda: "desk")
    notice = background.hand_over_run(app, run_of(left))
    assert "in the background: vastrun serve --driver, on a computer of the team" in notice
    assert not (left.folder / "drivers").exists()


def test_a_run_that_another_launcher_drives_is_left_to_it(left: Terminal) -> None:
    hold(left)
    assert background.hand_over_run(app_of(left), run_of(left)) == ""


def test_where_no_driver_can_be_started_it_is_said_what_to_type(left: Terminal) -> None:
    (left.folder / "drivers").write_text("")
    with pytest.raises(StorageError) as caught:
        background.hand_over_run(app_of(left), run_of(left))
    assert caught.value.hint == f"vastrun resume {run_of(left).id}"


def test_a_driver_that_gave_up_stays_and_says_why(left: Terminal, capsys: pytest.CaptureFixture[str]) -> None:
    folder = dead_driver(left, AuthError("the provider does not accept the key"))
    background.replace_dead_drivers(app_of(left))
    said = capsys.readouterr().err
    assert "gave up: the provider does not accept the key" in said
    assert f"try:   vastrun resume {run_of(left).id} -d" in said
    assert len(folder.records()) == 1


def test_a_dead_driver_of_a_run_that_another_launcher_drives_is_not_replaced(
    left: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    dead_driver(left)
    hold(left)
    background.replace_dead_drivers(app_of(left))
    assert capsys.readouterr().err == ""


@pytest.fixture
def killed(left: Terminal) -> str:
    """The launcher of the run, which the kernel killed for lack of memory."""
    who = "desk:4711:00c0ffee"
    left.ledger.hold(run_of(left).id, Driver(who=who, until=left.clock.now() - 1))
    return who


def presence_of(terminal: Terminal) -> Presence:
    folder = terminal.folder / "launchers"
    folder.mkdir(exist_ok=True)
    (folder / "4711-00c0ffee.killed").touch()
    return Presence(folder)


def test_a_launcher_that_was_killed_for_memory_is_reported_once_with_what_continues_its_run(
    left: Terminal, killed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    app, presence = with_drivers(left, None), presence_of(left)
    background.continue_killed(app, [killed])
    run_id = run_of(left).id
    assert capsys.readouterr().err.splitlines() == [
        f"the launcher of {run_id} (process 4711) was killed, most likely by the kernel: "
        "this computer ran out of memory",
        f"try:   vastrun resume {run_id}",
    ]
    assert not presence.killed_for_memory()


def test_a_batch_launcher_that_was_killed_for_memory_between_two_runs_is_reported_too(
    left: Terminal, killed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    left.ledger.release(run_of(left).id, killed)
    spec = BatchSpec(name="widths", job="job.yaml")
    batch = Batch(name="widths", spec=spec, provider="fake", folder=".", created_at=0.0, opened_at=0.0)
    left.ledger.batches.submit(batch, [])
    left.ledger.batches.hold("widths", Driver(who=killed, until=left.clock.now() - 1))
    presence_of(left)
    background.continue_killed(with_drivers(left, None), [killed])
    said = capsys.readouterr().err
    assert "the launcher of widths (process 4711) was killed, most likely by the kernel" in said
    assert "try:   vastrun batch resume widths" in said


def test_where_no_driver_can_be_started_for_it_that_is_said(
    left: Terminal, killed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (left.folder / "drivers").write_text("")
    presence_of(left)
    background.continue_killed(app_of(left), [killed])
    said = capsys.readouterr().err
    assert "cannot start a background driver" in said
    assert f"try:   vastrun resume {run_of(left).id}" in said


def test_nothing_is_said_of_one_whose_run_has_ended_or_has_another_launcher(
    left: Terminal, killed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hold(left)
    presence_of(left)
    background.continue_killed(app_of(left), [killed])
    assert capsys.readouterr().err == ""


def test_the_record_of_an_ended_run_is_removed(left: Terminal, capsys: pytest.CaptureFixture[str]) -> None:
    folder = dead_driver(left)
    left.type("stop", "last")
    background.replace_dead_drivers(app_of(left))
    assert (capsys.readouterr().err, folder.records()) == ("", [])


@pytest.mark.parametrize("words", [("status",), ("status", "last")])
def test_status_says_how_long_a_training_that_ended_waits_for_its_download(
    words: tuple[str, ...], terminal: Terminal
) -> None:
    terminal.launch("--detach")
    assert "waiting" not in terminal.type(*words).stdout
    terminal.clock.sleep(60)
    assert re.search(r"training ended, waiting for download, \d+m left", terminal.type(*words).stdout)
    document = terminal.document(*words)
    run = document["run"] if "run" in document else document["runs"][0]
    assert 0 < run["download_left_s"] <= 3600
    terminal.ledger.hold(run["id"], Driver(who="attic:77:1.0", until=terminal.clock.now() + 600))
    assert "waiting" not in terminal.type(*words).stdout
    assert terminal.document("status")["runs"][0]["download_left_s"] is None


def test_a_machine_cannot_lengthen_what_status_says_is_left(terminal: Terminal) -> None:
    terminal.launch("--detach")
    run = run_of(terminal)
    ended = BoxStatus(at=0.0, box="ended", lease="armed", lease_ends_at=1e12)
    row = row_of(terminal.ledger, run, terminal.clock.now())
    left_s = with_download(row, ended, terminal.clock.now()).download_left_s
    assert left_s is not None and left_s <= read_job(run.spec_json).limits.hours * 3600
    past = replace(ended, lease_ends_at=-5.0)
    assert with_download(row, past, terminal.clock.now()).download_left_s == 0


def left_text(**changes: Any) -> str:
    return background.detached_text(*NAMES, **{"outputs": "", "pushed_to": None, "notifies": (), **changes})


def test_it_says_what_drives_the_run_and_how_its_end_is_told() -> None:
    text = left_text()
    assert text.startswith("calm-heron-3f1a continues in the background: process 42, log /x.log\n")
    assert background.NOTIFY_HINT in text
    assert "Notification when it ends: https://ntfy.sh/…" in left_text(notifies=["https://ntfy.sh/…"])


def test_it_says_how_long_outputs_are_kept() -> None:
    kept = background.outputs_text(1800.0, None)
    assert kept.endswith("keeps the outputs for 30m (limits.collect_s).")
    assert kept in left_text(outputs=kept)
    assert "for 30m (limits.collect_s), until 1970-01-01" in background.outputs_text(1800.0, 7200.0)


def test_it_says_whether_checkpoints_are_safe() -> None:
    assert "only where the job pushes them" in left_text()
    assert "pushed to s3://models/demo" in left_text(pushed_to="s3://models/demo")


def test_a_batch_has_points_to_start() -> None:
    assert "starts the remaining points" in left_text(is_batch=True)
