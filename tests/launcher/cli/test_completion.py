"""`vastrun completion`: a script for each shell, and the same candidates for bash and PowerShell."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.shell_completion import get_completion_class
from click.testing import CliRunner

from tests.runs import ended_run
from tests.slow import slow
from tests.waiting import LONGEST_S
from vastrun.launcher.cli import cli
from vastrun.launcher.ledger.sqlite import SqliteLedger

HAS_POWERSHELL = get_completion_class("powershell") is not None
"""click has it from 8.5 on."""
SHELLS = ("bash", "zsh", "fish", *(("powershell",) if HAS_POWERSHELL else ()))
NAMES = {"calm-heron-3f1a", "calm-lynx-00ff", "witty-owl-9b2c"}
HOSTILE = ("calm-x\nplain\nrm", "calm-\x1b[2J", "calm-" + "x" * 5000, "calm-$(reboot)", "calm-a b", "-calm")
"""Ids that no launcher makes, as another program may have written them into a team's ledger."""


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """The folder of the ledger."""
    path = tmp_path / "vastrun" / "ledger.db"
    with closing(SqliteLedger(path, now=lambda: 0.0, alive=lambda _: False)) as ledger:
        for name in (*NAMES, *HOSTILE):
            ledger.add(ended_run(id=name))
    yield tmp_path


def answer_to(instruction: str, state: Path, words: str = "", word: int = 0) -> str:
    """What the program prints when a shell asks it."""
    environ = {
        **os.environ,
        "XDG_STATE_HOME": str(state),
        "_VASTRUN_COMPLETE": instruction,
        "COMP_WORDS": words,
        "COMP_CWORD": str(word),
    }
    program = [sys.executable, "-c", "from vastrun.launcher.cli import cli; cli(prog_name='vastrun')"]
    return subprocess.run(
        program, env=environ, capture_output=True, text=True, timeout=LONGEST_S, check=True
    ).stdout


def bash_candidates(state: Path, words: str, word: int) -> list[tuple[str, str]]:
    """The type and the value of each."""
    lines = answer_to("bash_complete", state, words, word).splitlines()
    return [(kind, value) for kind, _, value in (line.partition(",") for line in lines if line)]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_prints_the_script_that_click_prints(shell: str, tmp_path: Path) -> None:
    end = CliRunner().invoke(cli, ["completion", shell])
    assert end.exit_code == 0
    assert "_VASTRUN_COMPLETE" in end.output
    assert end.output.strip() == answer_to(f"{shell}_source", tmp_path).strip()


@pytest.mark.skipif(HAS_POWERSHELL, reason="click is new enough")
def test_an_older_click_is_to_be_upgraded_for_powershell() -> None:
    end = CliRunner().invoke(cli, ["completion", "powershell"], prog_name="vastrun")
    assert end.exit_code == 2
    assert "upgrade click" in end.stderr


@pytest.mark.skipif(not HAS_POWERSHELL, reason="click is older than 8.5")
@pytest.mark.parametrize(
    ("words", "word", "expected"),
    [
        ("vastrun why calm-", 2, {"calm-heron-3f1a", "calm-lynx-00ff"}),
        ("vastrun launch 'my job.yaml' --de", 3, {"--detach"}),
        *slow(
            ("vastrun ", 1, {"launch", "status", "why"}),
            ("vastrun la", 1, {"launch"}),
            ("vastrun why ", 2, {"last", *NAMES}),
            ('vastrun why "wit', 2, {"witty-owl-9b2c"}),
            ("vastrun stop last --reason 'enough  seen' --n", 5, {"--now"}),
            ("vastrun completion p", 2, {"powershell"}),
            ("vastrun why nothing-like-this", 2, set()),
        ),
    ],
)
def test_powershell_is_offered_what_bash_is(state: Path, words: str, word: int, expected: set[str]) -> None:
    lines = answer_to("powershell_complete", state, words, word).splitlines()
    offered = list(zip(lines[::3], lines[1::3], strict=False))
    assert offered == bash_candidates(state, words, word)
    assert expected <= {value for _, value in offered}
    assert bool(offered) == bool(expected)


def test_an_id_that_no_launcher_makes_is_not_offered(state: Path) -> None:
    values = {value for _, value in bash_candidates(state, "vastrun why ", 2)}
    assert values == {"last", *NAMES}
