"""`vastrun --help`: quick to start, and true."""

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.waiting import LONGEST_S
from vastrun.launcher.cli import COMMANDS, EXIT_CODES, cli
from vastrun.launcher.core import verdict
from vastrun.launcher.core.errors import AuthError, NoOfferError, UsageError, VastrunError

_SLOW = {
    *("pydantic", "yaml", "psutil", "sqlite3", "torch", "numpy", "asyncio", "subprocess", "socket", "json"),
    *("dataclasses", "tempfile", "random", "importlib.metadata"),
}
_DRIVING = {
    *(
        "vastrun.launcher.flow.drive",
        "vastrun.launcher.commands.attempts",
        "vastrun.launcher.image.lock",
        "vastrun.launcher.cost.groups",
    ),
    *("vastrun.launcher.notifications", "pydantic", "yaml", "vastai", "docker", "paramiko", "rich"),
}


def test_help_imports_nothing_of_the_launcher_but_the_table_of_commands() -> None:
    loaded = _loaded_by("--help")
    ours = {name for name in loaded if name.partition(".")[0] == "vastrun"}
    assert ours == {"vastrun", "vastrun.launcher", "vastrun.launcher.cli"}
    by_click = set(_printed_by("import sys, click; print(*sys.modules)").split())
    assert not (loaded - by_click) & _SLOW


@pytest.mark.parametrize("words", ["status", "status --all"])
def test_a_command_that_reads_the_ledger_imports_nothing_that_drives(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    loaded = _loaded_by(*words.split())
    assert "vastrun.launcher.ledger.sqlite" in loaded
    assert not loaded & _DRIVING
    # With what the trainer can be told, a job is a sixth of the start.
    assert not loaded & {"vastrun.launcher.core.job", "vastrun.trainer.job.config"}


def _loaded_by(*words: str) -> set[str]:
    """What the command has imported."""
    said = _printed_by(
        "import sys; before = set(sys.modules); from vastrun.launcher.cli import cli\n"
        f"cli({words!r}, standalone_mode=False)\n"
        "print('LOADED', *sorted(set(sys.modules) - before))"
    )
    return set(said.rpartition("LOADED")[2].split())


def _printed_by(program: str) -> str:
    words = [sys.executable, "-c", program]
    return subprocess.run(words, capture_output=True, text=True, timeout=LONGEST_S, check=True).stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_table_is_there_and_has_help(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name
    end = CliRunner().invoke(cli, [name, "--help"])
    assert end.exit_code == 0
    assert all(len(line) <= 80 for line in end.output.splitlines())


def test_the_help_lists_every_command_and_every_exit_code() -> None:
    said = CliRunner().invoke(cli, ["--help"]).output
    assert all(re.search(rf"^  {name} ", said, re.MULTILINE) for name in COMMANDS)
    assert all(re.search(rf"^  {code} ", said, re.MULTILINE) for code in EXIT_CODES)


def test_every_exit_code_that_can_happen_is_explained() -> None:
    of_errors = {kind.exit_code for kind in (VastrunError, UsageError, AuthError, NoOfferError)}
    of_runs = {*verdict.EXIT_CODE_OF.values(), verdict.EXIT_TEARDOWN_NOT_CONFIRMED}
    of_waits = {verdict.EXIT_TIMED_OUT, verdict.EXIT_INTERRUPTED, verdict.EXIT_DECLINED}
    assert set(EXIT_CODES) == of_errors | of_runs | of_waits


def test_the_page_of_verdicts_explains_the_exit_codes_in_the_same_words() -> None:
    page = (Path(__file__).parents[3] / "docs" / "troubleshooting.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", page, re.MULTILINE)
    assert {int(code): meaning for code, meaning in rows} == dict(EXIT_CODES)


def test_a_misspelt_command_is_answered_with_the_nearest() -> None:
    end = CliRunner().invoke(cli, ["lanch"])
    assert end.exit_code == 2
    assert "did you mean launch?" in end.output


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (["launch"], "missing argument 'JOB.yaml'", "vastrun launch --help"),
        (["launch", "--bogus", "x"], "no such option", "vastrun launch --help"),
        (["--bogus"], "no such option", "vastrun --help"),
        (["lanch"], "no such command: lanch; did you mean launch?", "vastrun --help"),
        (["ps"], "no such command: ps; did you mean status?", "vastrun --help"),
        (["launch", "quikstart.yaml"], "cannot read quikstart.yaml: No such file", "quickstart.yaml"),
        (
            ["sweep", "quikstart.yaml", "lr=1,2"],
            "cannot read quikstart.yaml: No such file",
            "quickstart.yaml",
        ),
        (["batch", "submit", "quikstart.yaml"], "cannot read quikstart.yaml: No such", "quickstart.yaml"),
        (["wait", "last", "--timeout", "soon"], "--timeout: expected a duration", "vastrun wait --help"),
        (["logs", "last", "--tail", "x"], "--tail: 'x' is not a valid integer", "vastrun logs --help"),
        (["logs", "last", "--rank"], "option '--rank' requires an argument", "vastrun logs --help"),
        (["image", "build", "--bogus"], "no such option", "vastrun image build --help"),
        (["status", "a", "b"], "got unexpected extra argument (b)", "vastrun status --help"),
    ],
)
def test_a_wrong_command_line_is_told_as_any_other_error(
    arguments: list[str], error: str, hint: str, tmp_path: Path
) -> None:
    end = CliRunner(env={"XDG_STATE_HOME": str(tmp_path)}).invoke(cli, arguments, prog_name="vastrun")
    assert (end.exit_code, end.stdout) == (2, "")
    *_, said, advice = end.stderr.splitlines()
    assert said.startswith(f"error: {error}")
    assert advice == f"try:   {hint}"
    assert "Usage:" not in end.stderr
