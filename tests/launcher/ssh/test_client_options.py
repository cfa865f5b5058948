"""OpenSSH's own client, started for the user: it goes where the launcher has been, and nowhere else."""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.http_servers import QuietHandler, serving
from tests.launcher.ssh.machine import Machine
from tests.pty import ENTER, pty
from tests.waiting import LONGEST_S, eventually
from vastrun.launcher.core import LocalProgram
from vastrun.launcher.core.errors import UnreachableError
from vastrun.launcher.ssh.remote import SshRemote

pytestmark = [pytest.mark.needs("ssh"), pytest.mark.needs("sshd")]


def run(program: LocalProgram) -> subprocess.CompletedProcess[str]:
    return subprocess.run(program.argv, capture_output=True, text=True, timeout=LONGEST_S)


def test_a_machine_whose_host_key_has_changed_since_is_refused(machine: Machine, shell: SshRemote) -> None:
    program = shell.terminal("echo inside")
    machine.change_host_key()
    done = run(program)
    assert (done.returncode, done.stdout) == (255, "")
    assert "Host key verification failed" in done.stderr


def test_a_changed_host_key_that_the_machine_s_log_names_is_accepted(machine: Machine) -> None:
    named = [machine.sshd.fingerprint]
    shell = machine.shell(read_fingerprints=lambda: named)
    assert run(shell.terminal("echo inside")).stdout == "inside\n"
    machine.change_host_key()
    named.append(machine.sshd.fingerprint)
    done = run(shell.terminal("echo inside"))
    assert done.stdout == "inside\n", done.stderr


def test_nothing_of_the_users_own_settings_or_agent_is_used(
    machine: Machine, shell: SshRemote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    done = run(shell.terminal('echo "agent: $SSH_AUTH_SOCK"'))
    assert done.stdout == "agent: \n", done.stderr


def test_a_machine_that_is_not_reached_is_told_before_any_client_starts(machine: Machine) -> None:
    machine.sshd.stop()
    with pytest.raises(UnreachableError):
        machine.shell().terminal()


@pytest.mark.needs("terminal")
def test_a_shell_in_the_box_has_a_terminal_of_its_own(machine: Machine, shell: SshRemote) -> None:
    (machine.box / "note").write_text("from the box")
    with pty(list(shell.terminal().argv), columns=80, cwd=machine.box, environ=os.environ) as terminal:
        terminal.press(f"tty; cat note{ENTER}")
        terminal.shows("/dev/pts/")
        terminal.shows("from the box")
        terminal.press(f"exit 4{ENTER}")
        assert terminal.end() == 4


def test_a_port_of_the_machine_becomes_one_of_this_computer(shell: SshRemote) -> None:
    with answering(b"a notebook") as port, kept_port() as free:
        program = shell.tunnel(port, free)
        assert program is not None
        client = subprocess.Popen(program.argv)
        try:
            assert eventually(lambda: fetched(free)) == b"a notebook"
        finally:
            client.terminate()
            client.wait(LONGEST_S)


def fetched(port: int) -> bytes | None:
    try:
        with urlopen(f"http://127.0.0.1:{port}/", timeout=LONGEST_S) as answer:
            content: bytes = answer.read()
            return content
    except OSError:
        return None


@contextmanager
def kept_port() -> Iterator[int]:
    """A port that nobody else is given, and on which a program may listen that allows others there."""
    with socket.socket() as place:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(("127.0.0.1", 0))
        yield place.getsockname()[1]


@contextmanager
def answering(content: bytes) -> Iterator[int]:
    """A program on the machine that answers on loopback alone."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self.answer(200, content)

    with serving(Handler) as url:
        yield int(url.rpartition(":")[2])
