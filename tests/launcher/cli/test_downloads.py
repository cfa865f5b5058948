"""`vastrun profile`: the trace of a running training, or why there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import Result

from tests.fake_profiles import OPERATIONS, TRACE
from tests.fakebox import Training
from tests.launcher.terminal import Terminal
from vastrun.contract import layout


def test_a_profile_of_the_next_steps_lies_among_the_outputs_and_the_training_goes_on(
    terminal: Terminal,
) -> None:
    terminal.launch("--detach")
    terminal.clock.sleep(6)

    end = terminal.type("profile", "last", "--steps", "7")

    assert end.exit_code == 0, end.output
    folder = terminal.folder / "out" / "profile"
    assert (folder / "trace-step-4.json.gz").read_bytes() == TRACE
    assert (folder / "operations-step-4.txt").read_bytes() == OPERATIONS
    assert "https://ui.perfetto.dev" in end.stdout
    assert terminal.machines() == 1
    assert terminal.type("attach", "last").exit_code == 0
    assert (folder / "trace-step-4.json.gz").read_bytes() == TRACE


def test_json_says_where_the_files_lie(terminal: Terminal) -> None:
    terminal.launch("--detach")
    terminal.clock.sleep(6)
    document = terminal.document("profile", "last")
    assert (document["step"], document["steps"]) == (4, 5)
    assert Path(document["trace"]).read_bytes() == TRACE
    assert Path(document["operations"]).read_bytes() == OPERATIONS


def test_a_run_that_has_ended_says_how_to_profile_the_next_one(terminal: Terminal) -> None:
    terminal.launch()
    end = terminal.type("profile", "last")
    assert end.exit_code == 2
    assert "has finished training" in end.stderr
    assert "train.profile" in end.stderr


def test_a_training_that_is_over_though_its_row_does_not_say_so_is_told(terminal: Terminal) -> None:
    terminal.launch("--detach")
    terminal.clock.sleep(60)
    end = terminal.type("profile", "last")
    assert end.exit_code == 2
    assert "has finished training" in end.stderr


def test_a_run_in_its_set_up_is_not_training_yet(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, Training(before_s={"25-packages": 600.0}))
    ends: list[Result] = []
    terminal.at(100, lambda: ends.append(terminal.type("profile", "last")))
    terminal.launch("--detach")
    (end,) = ends
    assert end.exit_code == 2
    assert "is not training yet (set-up step 25-packages)" in end.stderr


def test_a_program_of_the_users_own_is_told_to_profile_itself(terminal: Terminal) -> None:
    terminal.job.write_text(
        "name: own\nresources: {gpus: 2}\nlimits: {hours: 1, usd: 3}\n"
        "command: [python, train.py]\nsuccess: {exit_code: 0}\n"
    )
    terminal.launch("--detach")
    end = terminal.type("profile", "last")
    assert end.exit_code == 2
    assert "torch.profiler" in end.stderr
    assert "$VASTRUN_OUTPUTS" in end.stderr


def test_a_training_that_sends_nothing_is_waited_for_no_longer_and_the_request_withdrawn(
    tmp_path: Path,
) -> None:
    terminal = Terminal(tmp_path, Training(seconds=3000, profiles=False))
    terminal.launch("--detach")
    began = terminal.clock.now()
    end = terminal.type("profile", "last", "--timeout", "90s")
    assert end.exit_code == 1
    assert "sent no profile in time" in end.stderr
    assert 90 <= terminal.clock.now() - began < 100
    machine = terminal.market.instances()[0]
    assert layout.PROFILE_REQUEST not in terminal.market.box(machine.id).files


def test_a_training_that_ends_meanwhile_is_not_waited_for(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, Training(seconds=60, profiles=False))
    terminal.launch("--detach")
    end = terminal.type("profile", "last")
    assert end.exit_code == 2
    assert "has finished training" in end.stderr


@pytest.mark.parametrize("steps", ["0", "101", "many"])
def test_a_number_of_steps_that_is_out_of_range_is_refused(steps: str, terminal: Terminal) -> None:
    terminal.launch("--detach")
    assert terminal.type("profile", "last", "--steps", steps).exit_code == 2


def test_a_held_machine_is_no_training(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, Training(kind="hold", seconds=3000))
    terminal.type("hold", str(terminal.job), "-y", "-d", "--out", str(tmp_path / "out"))
    end = terminal.type("profile", "last")
    assert end.exit_code == 2
    assert "holds a machine for other runs" in end.stderr
