"""`serve --driver` and the secrets that commands print: run on one's own ledger, never those of a team's."""

import shlex
import signal
from pathlib import Path

import pytest

from tests.e2e.terminal import WITH_STUB_TORCH, Launch, Terminal
from tests.launcher.ledger.postgres import PostgresServer
from tests.waiting import eventually

pytestmark = pytest.mark.slow

VALUE = "from-the-vault-4711"
JOB = """\
name: secretive
resources: {gpus: 0, disk_gb: 8}
ranks: 1
limits: {hours: 0.2}
env: {PYTHONPATH: %(torch)s}
secrets: [{name: TOKEN, command: %(command)s}]
command: until test -e %(folder)s/go; do sleep 0.2; done; test "$TOKEN" = %(value)s && echo told {n}
success: {log: told}
"""


class Desk:
    """A user whose batch of two points, one at a time, lost its launcher during the first one."""

    def __init__(self, terminal: Terminal, vault: Path) -> None:
        self.terminal, self._vault = terminal, vault
        (vault / "token").write_text(f"{VALUE}\n")
        folder = shlex.quote(str(vault))
        command = f'"printf x >>{folder}/calls; cat {folder}/token"'
        values = {"torch": WITH_STUB_TORCH[1].rpartition("=")[2], "command": command, "folder": folder}
        (terminal.folder / "job.yaml").write_text(JOB % {**values, "value": VALUE})
        self.launch = terminal.start(
            *("sweep", "job.yaml", "n=1,2", "--provider", "local", "--parallel", "1", "-y")
        )
        eventually(lambda: self._phases() == ["train"], what="a point that trains")
        self.launch.kill()

    @property
    def calls(self) -> int:
        """How often the command was run."""
        return len((self._vault / "calls").read_text())

    def let_points_end(self) -> None:
        """The programs of both points go on, and end."""
        (self._vault / "go").touch()

    def serve(self, **variables: str) -> Launch:
        """A server on the user's ledger."""
        return self.terminal.start("serve", "--driver", **variables)

    def verdicts(self) -> list[str]:
        """The verdicts of the runs that have ended."""
        return [run["verdict"] for run in self._runs() if run["verdict"]]

    def _phases(self) -> list[str]:
        return [run["phase"] for run in self._runs()]

    def _runs(self) -> list[dict[str, str]]:
        runs: list[dict[str, str]] = self.terminal.type("status", "--all", "--json").json()["runs"]
        return runs


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    """Where the secret lies, and the calls of its command are counted."""
    (tmp_path / "vault").mkdir()
    return tmp_path / "vault"


def end(serve: Launch) -> str:
    """Ctrl-C ends the server; what it said."""
    serve.send(signal.SIGINT)
    assert serve.end().exit_code == 0, serve.err
    return serve.err


def test_on_an_own_ledger_a_server_runs_the_next_points_command(terminal: Terminal, vault: Path) -> None:
    desk = Desk(terminal, vault)
    assert desk.calls == 1
    desk.let_points_end()
    serve = desk.serve()
    eventually(lambda: desk.verdicts() == ["SUCCEEDED"] * 2, what="the end of both points")
    end(serve)
    assert desk.calls == 2


def test_a_server_of_a_team_runs_no_command_of_the_ledger_and_takes_the_variable_instead(
    terminal: Terminal, vault: Path, postgres: PostgresServer
) -> None:
    terminal.variables |= {"VASTRUN_LEDGER": postgres.database(), "VASTRUN_TEAM_KEY": "k" * 44}
    desk = Desk(terminal, vault)
    desk.let_points_end()

    serve = desk.serve()
    serve.shows("secrets: TOKEN comes from a command of a job file that this launcher did not read")
    said = end(serve)
    assert 'export TOKEN="$(printf x' in said
    assert desk.calls == 1, "the server ran a command that it found in the ledger"
    assert desk.verdicts() == ["SUCCEEDED"]

    serve = desk.serve(TOKEN=VALUE)
    eventually(lambda: desk.verdicts() == ["SUCCEEDED"] * 2, what="the end of both points")
    end(serve)
    assert desk.calls == 1
