"""`stop`: a run ends before its time, with its outputs or at once."""

from __future__ import annotations

from tests.launcher.terminal import Terminal
from vastrun.launcher.core import Driver, UserRequest


def test_stop_asks_whoever_drives_the_run(terminal: Terminal) -> None:
    terminal.launch("--detach")
    (run,) = terminal.ledger.runs()
    terminal.ledger.hold(run.id, Driver(who="attic:77:1.0", until=terminal.clock.now() + 600))
    terminal.at(1, lambda: terminal.ledger.release(run.id, "attic:77:1.0"))
    terminal.type("stop", "last", "--reason", "enough seen")
    assert terminal.ledger.user_request(run.id) is UserRequest.STOP
    assert any("enough seen" in event.text for event in terminal.ledger.events(run.id))


def test_stop_brings_the_run_to_its_end_when_nobody_drives_it(terminal: Terminal) -> None:
    terminal.launch("--detach")
    end = terminal.type("stop", "last")
    assert end.exit_code == 0, end.output
    assert "STOPPED" in end.stdout
    assert (terminal.folder / "out" / "details" / "outcome.json").is_file()
    assert terminal.machines() == 0


def test_stop_now_ends_the_machine_without_its_outputs(terminal: Terminal) -> None:
    terminal.launch("--detach")
    assert terminal.type("stop", "last", "--now").exit_code == 0
    assert not (terminal.folder / "out" / "details" / "outcome.json").exists()
    assert terminal.machines() == 0
