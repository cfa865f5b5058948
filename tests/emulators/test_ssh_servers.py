"""What the tests need of an SSH server: OpenSSH's, and the stand-in for it, do the same."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paramiko
import pytest

from tests.emulators.sshd import Sshd
from tests.waiting import LONGEST_S, eventually
from vastrun.launcher.ssh.keys import KeyRing

SERVERS = [
    pytest.param(True, marks=pytest.mark.needs("sshd"), id="openssh"),
    pytest.param(False, id="stand-in"),
]
Open = Callable[..., paramiko.Transport]


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sshd]:
    with Sshd(tmp_path / "sshd", real=request.param) as server:
        yield server


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return KeyRing(tmp_path / "keys").pair("run").private_path


@pytest.fixture
def log_in(server: Sshd, key: Path) -> Iterator[Open]:
    """A connection of somebody with that key; each is closed at the end."""
    opened: list[paramiko.Transport] = []

    def open_one(user: str = server.user) -> paramiko.Transport:
        opened.append(paramiko.Transport(server.address))
        opened[-1].start_client(timeout=LONGEST_S)
        opened[-1].auth_publickey(user, paramiko.Ed25519Key.from_private_key_file(str(key)))
        return opened[-1]

    yield open_one
    for transport in opened:
        transport.close()


@pytest.fixture
def line(server: Sshd, key: Path, log_in: Open) -> paramiko.Transport:
    """A connection of somebody who may log in."""
    server.authorize(public(key))
    return log_in()


def public(key: Path) -> str:
    return f"ssh-ed25519 {paramiko.Ed25519Key(filename=str(key)).get_base64()}\n"


def started(line: paramiko.Transport, command: str) -> Any:
    channel = line.open_session()
    channel.settimeout(LONGEST_S)
    channel.exec_command(command)
    return channel


def output_of(line: paramiko.Transport, command: str) -> str:
    content: bytes = started(line, command).makefile().read()
    return content.decode()


def test_only_an_authorized_key_of_the_one_user_is_let_in(server: Sshd, key: Path, log_in: Open) -> None:
    with pytest.raises(paramiko.AuthenticationException):
        log_in()
    server.authorize(public(key))
    with pytest.raises(paramiko.AuthenticationException):
        log_in("somebody-else")
    assert "Accepted publickey" not in server.log
    assert output_of(log_in(), "echo in") == "in\n"
    assert server.log.count("Accepted publickey") == 1


def test_both_outputs_come_apart_with_the_exit_code(line: paramiko.Transport) -> None:
    channel = started(line, "echo out; echo err >&2; exit 7")
    assert (channel.makefile().read(), channel.makefile_stderr().read()) == (b"out\n", b"err\n")
    assert channel.recv_exit_status() == 7


def test_input_is_read_to_its_end(line: paramiko.Transport) -> None:
    channel = started(line, "cat; echo end")
    channel.sendall(b"x" * 3_000_000)
    channel.shutdown_write()
    assert channel.makefile().read() == b"x" * 3_000_000 + b"end\n"


def test_a_command_that_a_signal_ended_has_no_exit_code(line: paramiko.Transport) -> None:
    assert started(line, "kill -KILL $$").recv_exit_status() == -1


def test_many_commands_run_at_once_on_one_line(line: paramiko.Transport) -> None:
    channels = [started(line, f"read go; echo {number}") for number in range(8)]
    for channel in reversed(channels):
        channel.sendall(b"\n")
    assert [channel.makefile().read() for channel in channels] == [b"%d\n" % number for number in range(8)]


def test_a_command_knows_its_home_its_user_and_its_client(server: Sshd, line: paramiko.Transport) -> None:
    home, user, client = output_of(line, "echo $HOME $USER ${SSH_CLIENT%% *}").split()
    assert (home, user, client) == (str(server.home), server.user, "127.0.0.1")


def test_bash_reads_the_settings_of_its_user_first(server: Sshd, line: paramiko.Transport) -> None:
    (server.home / ".bashrc").write_text("echo hello\n")
    assert output_of(line, "echo there") == "hello\nthere\n"


def test_a_command_whose_line_is_cut_reads_the_end_of_its_input_and_goes_on(
    line: paramiko.Transport, tmp_path: Path
) -> None:
    channel = started(line, f"echo began; cat; touch {tmp_path}/over")
    assert channel.recv(6) == b"began\n"
    line.close()
    assert eventually((tmp_path / "over").exists)


def test_leftovers_outlive_the_server(server: Sshd, line: paramiko.Transport, tmp_path: Path) -> None:
    left = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done; touch {tmp_path}/done"
    assert output_of(line, f"setsid sh -c '{left}' >/dev/null 2>&1 </dev/null & echo left") == "left\n"
    server.stop()
    (tmp_path / "go").touch()
    assert eventually((tmp_path / "done").exists)


def test_it_shows_the_host_key_that_it_was_given_last(server: Sshd, log_in: Open, key: Path) -> None:
    server.authorize(public(key))
    before = log_in().get_remote_server_key()
    server.stop()
    server.new_host_key()
    server.start()
    after = log_in().get_remote_server_key()
    assert (before == after, after.fingerprint) == (False, server.fingerprint)


@pytest.mark.parametrize("loose", ["keys", "keys.parent", "home"])
def test_key_that_others_may_write_is_not_accepted(server: Sshd, key: Path, log_in: Open, loose: str) -> None:
    if not server.is_strict:
        pytest.skip("this computer does not allow to mount a home in a safe folder")
    server.authorize(public(key))
    path = {"keys": server.keys, "keys.parent": server.keys.parent, "home": server.home}[loose]
    mode = path.stat().st_mode
    path.chmod(0o777)
    with pytest.raises(paramiko.AuthenticationException):
        log_in()
    path.chmod(mode)
    log_in()
