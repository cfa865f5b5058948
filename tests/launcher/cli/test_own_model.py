"""A model of the user's code is tried before a machine is paid for."""

import pytest

from tests.jobs import workloads
from tests.launcher.terminal import Terminal
from vastrun.launcher.commands.estimate import EstimateError
from vastrun.launcher.core.errors import JobValueError

SOURCE = "class Net:\n    def __init__(self, *, grid, channels, conditions): ...\n"
OWN = ("--set", "train.model.name=mymodel:Net", "--set", "code.path=code")


@pytest.fixture
def terminal(terminal: Terminal) -> Terminal:
    (terminal.folder / "code").mkdir()
    (terminal.folder / "code" / "mymodel.py").write_text(SOURCE)
    terminal.estimator.answer = workloads(strategy="ddp")
    return terminal


def test_a_model_that_is_there_and_was_tried_is_trained(terminal: Terminal) -> None:
    assert terminal.launch(*OWN).exit_code == 0
    assert terminal.market.rentals == 1


@pytest.mark.parametrize("command", ["plan", "launch"])
def test_a_model_that_cannot_be_trained_is_an_error(terminal: Terminal, command: str) -> None:
    terminal.estimator.answer = JobValueError("train.model.name: mymodel:Net returned None")
    end = terminal.type(command, str(terminal.job), *OWN)
    assert (end.exit_code, terminal.market.rentals) == (2, 0)
    assert "train.model.name: mymodel:Net returned None" in end.stderr


def test_what_cannot_be_known_here_is_told_and_the_job_is_launched(terminal: Terminal) -> None:
    terminal.estimator.answer = EstimateError("python has no torch")
    end = terminal.launch(*OWN)
    assert (end.exit_code, terminal.market.rentals) == (0, 1)
    assert "mymodel:Net was not tried on this computer: python has no torch" in end.stderr
