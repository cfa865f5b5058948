"""`wait`, `stop`, `resume` and `attach`: verdicts as exit codes, and machines that do not answer."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.launcher.terminal import CRASH, JOB, Terminal
from vastrun.launcher.core import Driver, UserRequest
from vastrun.launcher.core.bills import cost_usd


def test_wait_brings_a_detached_run_to_its_end_and_gives_its_verdict(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, CRASH)
    terminal.launch("--detach")
    assert terminal.type("wait", "last").exit_code == 5
    assert terminal.machines() == 0


def test_wait_gives_up_after_its_time_and_leaves_the_run_alone(terminal: Terminal) -> None:
    terminal.launch("--detach")
    end = terminal.type("wait", "last", "--timeout", "5s")
    assert end.exit_code == 124
    assert terminal.machines() == 1


def test_stop_asks_whoever_drives_the_run(terminal: Terminal) -> None:
    terminal.launch("--detach")
    (run,) = terminal.ledger.runs()
    terminal.ledger.hold(run.id, Driver(who="attic:77:1.0", until=terminal.clock.now() + 600))
    terminal.at(1, lambda: terminal.ledger.release(run.id, "attic:77:1.0"))
    end = terminal.type("stop", "last", "--reason", "enough seen")
    assert "stopping: save a checkpoint, download the outputs, destroy the machine\n" in end.stderr
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


def test_resume_goes_on_where_a_launcher_died(terminal: Terminal) -> None:
    terminal.launch("--detach")
    end = terminal.type("resume", "last")
    assert end.exit_code == 0
    assert terminal.machines() == 0


def test_a_machine_that_does_not_end_has_its_own_exit_code_and_resume_tries_again(terminal: Terminal) -> None:
    terminal.market.deaf = True
    end = terminal.launch()
    (run,) = terminal.ledger.runs()
    assert end.exit_code == 11
    assert "not destroyed" in end.stdout
    assert f"vastrun resume {run.id}" in end.stdout
    terminal.market.deaf = False
    assert terminal.type("resume", "last").exit_code == 0
    assert terminal.machines() == 0


def test_resume_says_who_drives_the_run_already(terminal: Terminal) -> None:
    terminal.launch("--detach")
    (run,) = terminal.ledger.runs()
    terminal.ledger.hold(run.id, Driver(who="attic:77:1.0", until=terminal.clock.now() + 600))
    end = terminal.type("resume", "last")
    assert end.exit_code == 1
    assert "process 77 on attic" in end.stderr
    assert f"vastrun logs -f {run.id}" in end.stderr
    assert "cost:  $" in end.stderr


def test_resume_of_a_run_that_ended_points_to_a_new_one(terminal: Terminal) -> None:
    terminal.launch()
    end = terminal.type("resume", "last")
    assert end.exit_code == 2
    assert "--from" in end.stderr


def test_resume_of_a_run_without_a_checkpoint_advises_nothing_that_fails(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, replace(CRASH, checkpoint_every=100, seconds=2.0))
    terminal.launch()
    shutil.rmtree(terminal.folder / "out" / "checkpoints", ignore_errors=True)
    end = terminal.type("resume", "last")
    assert end.exit_code == 2
    assert "left no checkpoint; nothing can be resumed" in end.stderr
    assert "try:   vastrun launch JOB.yaml " in end.stderr
    assert terminal.launch().exit_code == 5, "as it does anew"


def test_attach_follows_another_launcher_and_takes_over_when_that_one_dies(terminal: Terminal) -> None:
    terminal.launch("--detach")
    (run,) = terminal.ledger.runs()
    terminal.ledger.hold(run.id, Driver(who="attic:77:1.0", until=terminal.clock.now() + 10))
    end = terminal.type("attach", "last")
    assert end.exit_code == 0, end.output
    assert "process 77 on attic" in end.stderr
    assert "confirmed twice" in end.stderr
    assert terminal.machines() == 0


@pytest.fixture
def left(terminal: Terminal) -> Terminal:
    """The terminal, with a detached run that may be tried again."""
    (terminal.folder / "job.yaml").write_text(f"{JOB}retry: {{lost: 2}}\n")
    terminal.launch("--detach")
    terminal.clock.sleep(30)
    return terminal


@pytest.mark.parametrize(
    ("state", "said", "why"),
    [
        ("not_answering", "train (not answering)", "connection timed out"),
        ("not_listed", "train (gone by the list)", "the provider no longer lists its machine"),
    ],
)
def test_a_detached_run_says_what_is_known_of_a_machine_that_does_not_answer(
    state: str, said: str, why: str, left: Terminal
) -> None:
    if state == "not_listed":
        left.market.vanish()
    else:
        left.market.stranded_from = left.clock.now()
    assert said in left.type("status").stdout
    shown = left.type("status", "last").stdout
    assert said in shown and why in shown and "(detached)" not in shown
    assert left.document("status")["runs"][0]["machine_state"] == state


def test_outputs_that_are_fetched_too_late_are_lost_and_nothing_trains_again(left: Terminal) -> None:
    left.clock.sleep(86400)
    end = left.type("resume", "last")
    (run,) = left.ledger.runs()
    assert (end.exit_code, run.cause) == (7, "outputs_lost")
    assert cost_usd(run, left.clock.now()) <= 3 * 1.05
    why = left.type("why", "last").stdout
    assert "OUTPUTS_LOST: not seen for 24.0 h, in which the program may have ended" in why
    assert "here" in why and "gone for certain since" in left.type("status", "last").stdout
