"""Getting in: which address, whose key, and what is said when nobody opens."""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulators.cable import Cable
from tests.launcher.ssh.machine import INSTANCE, QUICK, RUN, Machine
from tests.waiting import LONGEST_S
from vastrun.launcher.core.errors import GoneError, HostKeyError, ProviderError, UnreachableError
from vastrun.launcher.ssh.connection import KeyRejectedError
from vastrun.launcher.ssh.remote import SshRemote


@pytest.fixture
def silent() -> Iterator[tuple[str, int]]:
    """An address that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()


@pytest.fixture
def closed() -> Iterator[tuple[str, int]]:
    """An address where nobody listens, nor ever will."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        yield place.getsockname()


def says_hello(shell: SshRemote) -> bool:
    return shell.run("echo hello", timeout_s=LONGEST_S).stdout == "hello\n"


def test_what_speaks_ssh_is_loaded_on_first_use_only() -> None:
    loaded = "import sys, vastrun.launcher.ssh.remote; print({'paramiko', 'cryptography'} & set(sys.modules))"
    seen = subprocess.run([sys.executable, "-c", loaded], check=True, capture_output=True, text=True)
    assert seen.stdout == "set()\n"


def test_the_proxy_is_used_when_the_direct_address_refuses(machine: Machine, closed: tuple[str, int]) -> None:
    assert says_hello(machine.shell(closed, machine.sshd.address))


def test_proxy_is_used_when_the_direct_address_is_silent(machine: Machine, silent: tuple[str, int]) -> None:
    assert says_hello(machine.shell(silent, machine.sshd.address, timeouts=QUICK))


def test_address_that_answered_is_tried_first_next_time(machine: Machine, silent: tuple[str, int]) -> None:
    assert says_hello(machine.shell(silent, machine.sshd.address, timeouts=QUICK))
    with Cable(silent) as direct:
        assert says_hello(machine.shell(direct.address, machine.sshd.address))
        assert direct.connections == 0


def test_what_went_wrong_is_said_for_every_address(
    machine: Machine, closed: tuple[str, int], silent: tuple[str, int]
) -> None:
    with pytest.raises(UnreachableError) as caught:
        machine.shell(closed, silent, timeouts=QUICK).read("note")
    refused, unanswered = str(caught.value).split("; ")
    assert f"127.0.0.1:{closed[1]} refused the connection" in refused
    assert f"127.0.0.1:{silent[1]} does not answer as an SSH server" in unanswered


def test_a_key_that_is_not_accepted_is_told_and_counted(machine: Machine) -> None:
    machine.sshd.keys.write_text("")
    shell = machine.shell()
    for _ in range(2):
        with pytest.raises(KeyRejectedError, match="rejects the run's SSH key"):
            shell.read("note")
    assert shell.auth_failures == 2


def test_a_broken_line_is_never_taken_for_a_rejected_key(machine: Machine, cable: Cable) -> None:
    for size in range(0, 4000, 250):
        shell = machine.shell(cable.address)
        cable.cut_after(size)
        with contextlib.suppress(UnreachableError):
            shell.read("note")
        assert shell.auth_failures == 0
        shell.close()
        cable.mend()


def test_the_user_s_own_keys_agent_and_settings_are_not_used(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host *\n  HostName 192.0.2.1\n  User nobody\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(tmp_path / "agent"))
        agent.listen()
        agent.setblocking(False)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        assert says_hello(machine.shell())
        with pytest.raises(BlockingIOError):  # nobody came
            agent.accept()


def test_a_host_key_is_believed_on_first_use_and_by_whoever_comes_later(machine: Machine) -> None:
    assert says_hello(machine.shell())
    host, port = machine.sshd.address
    noted = machine.keys.known_hosts(RUN, INSTANCE).read_text()
    assert noted.startswith(f"[{host}]:{port} ssh-ed25519 ")
    assert says_hello(machine.shell())
    assert machine.keys.known_hosts(RUN, INSTANCE).read_text() == noted


def test_a_host_key_that_changed_is_refused_before_anything_is_sent(machine: Machine) -> None:
    assert says_hello(machine.shell())
    machine.change_host_key()
    with pytest.raises(HostKeyError, match="has changed") as caught:
        machine.shell().write("inbox/secrets.env", b"A='b'\n")
    assert machine.sshd.fingerprint in str(caught.value)
    assert not (machine.box / "inbox").exists()
    assert machine.sshd.log.count("Accepted publickey") == 1


def test_host_key_that_the_machines_log_names_is_believed_also_when_it_is_a_new_one(machine: Machine) -> None:
    named = [machine.sshd.fingerprint]
    shell = machine.shell(read_fingerprints=lambda: named)
    assert says_hello(shell)
    assert shell.identity == "the machine's SSH host key is the one in its log"
    machine.change_host_key()
    with pytest.raises(HostKeyError):
        shell.read("note")
    named.append(machine.sshd.fingerprint)
    assert says_hello(shell)


def test_another_host_key_than_the_log_names_is_refused_by_every_launcher(machine: Machine) -> None:
    with pytest.raises(HostKeyError, match="log does not name"):
        machine.shell(read_fingerprints=lambda: ["SHA256:" + "A" * 43]).run("true", timeout_s=LONGEST_S)
    with pytest.raises(HostKeyError):
        machine.shell().run("true", timeout_s=LONGEST_S)
    assert "Accepted publickey" not in machine.sshd.log


def test_a_host_key_is_believed_on_first_use_when_the_log_cannot_be_read(machine: Machine) -> None:
    def cannot_tell() -> list[str]:
        raise ProviderError("its log cannot be read (HTTP 503)")

    shell = machine.shell(read_fingerprints=cannot_tell)
    assert says_hello(shell)
    assert "trusted on first use: its log cannot be read (HTTP 503)" in shell.identity
    again = machine.shell(read_fingerprints=cannot_tell)
    assert says_hello(again)
    assert again.identity == "the machine's SSH host key is the one that was trusted on first use"


def test_nothing_is_sent_while_the_log_may_still_name_the_host_key(machine: Machine) -> None:
    def not_yet() -> list[str]:
        raise UnreachableError("its log does not name its host key yet")

    with pytest.raises(UnreachableError, match="not name its host key yet"):
        machine.shell(read_fingerprints=not_yet).read("note")
    assert "Accepted publickey" not in machine.sshd.log


def test_a_machine_that_the_provider_has_no_more_is_gone(machine: Machine) -> None:
    machine.sshd.stop()
    with pytest.raises(GoneError, match="refused the connection"):
        machine.shell(is_gone=lambda: True).run("true", timeout_s=LONGEST_S)


def test_a_provider_that_cannot_tell_leaves_a_machine_silent_not_gone(machine: Machine) -> None:
    def cannot_tell() -> bool:
        raise ProviderError("too many requests")

    machine.sshd.stop()
    with pytest.raises(UnreachableError, match="refused the connection"):
        machine.shell(is_gone=cannot_tell).run("true", timeout_s=LONGEST_S)


def test_a_machine_whose_box_is_not_there_yet_is_unreachable(machine: Machine) -> None:
    machine.box.rmdir()
    with pytest.raises(UnreachableError, match="does not exist on the machine"):
        machine.shell().read("lease.state")
    machine.box.mkdir()
    assert says_hello(machine.shell())
