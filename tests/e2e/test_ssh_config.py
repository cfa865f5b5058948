"""`vastrun ssh-config`, and what the user's own programs do with what it prints."""

import socket
import subprocess
from pathlib import Path

import pytest

from tests.e2e.terminal import Done, Terminal
from tests.emulators import ssh_keys
from tests.ports import free_port
from tests.waiting import LONGEST_S, eventually

pytestmark = pytest.mark.needs("ssh", "sshd")

JOB = """\
name: long
resources: {gpus: 0, disk_gb: 8}
ranks: 1
limits: {hours: 0.2, usd: 1}
command: sh -c 'echo 0.5 > "$VASTRUN_OUTPUTS/loss.txt"; sleep 600'
success: {files: loss.txt}
"""


SERVER = """\
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print("listening on", server.getsockname()[1], flush=True)
connection, _ = server.accept()
connection.sendall(b"reached")
connection.close()
print("served", flush=True)
"""
"""Program that stands for VS Code's server, which listens on a port of the machine's loopback address."""


@pytest.fixture
def home(rented: Terminal) -> Path:
    """A home with a file of the user's own in ~/.ssh, and a job in the current folder."""
    home = rented.folder / "home"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    (home / ".ssh" / "config").write_text("Host *\n    ProxyCommand false\n")
    (rented.folder / "job.yaml").write_text(JOB)
    rented.variables["HOME"] = str(home)
    return home


def copied(home: Path, source: str, target: Path) -> str:
    """The text of a file that `scp` copied by the user's own ~/.ssh/config."""
    words = ["scp", "-F", str(home / ".ssh" / "config"), source, str(target)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LONGEST_S)
    return target.read_text() if done.returncode == 0 else done.stderr


def through_socks(proxy_port: int, port: int) -> bytes:
    """What the machine's loopback port sends, reached by the SOCKS 5 proxy (RFC 1928) of `ssh -D`."""
    with socket.create_connection(("127.0.0.1", proxy_port), timeout=LONGEST_S) as connection:
        stream = connection.makefile("rwb")
        stream.write(b"\x05\x01\x00")
        stream.flush()
        assert stream.read(2) == b"\x05\x00"
        stream.write(b"\x05\x01\x00\x01" + socket.inet_aton("127.0.0.1") + port.to_bytes(2, "big"))
        stream.flush()
        assert stream.read(10)[:2] == b"\x05\x00"
        return stream.read()


def folder_in(done: Done) -> str:
    """The folder of the box, by the hint that was printed."""
    line = next(line for line in done.err.splitlines() if line.startswith("VS Code:"))
    return line.split()[-1]


@pytest.mark.slow
def test_a_host_block_leads_to_the_machine_of_the_run(rented: Terminal, home: Path, tmp_path: Path) -> None:
    assert rented.type("launch", "job.yaml", "--provider", "vast", "-y", "-d").exit_code == 0
    printed = rented.type("ssh-config", "last")
    assert printed.exit_code == 0, printed.err
    host = f"vastrun-{rented.status()['run']['id']}"
    assert f"\nHost {host}\n" in printed.out
    assert list((home / ".ssh").iterdir()) == [home / ".ssh" / "config"]

    written = rented.type("ssh-config", "last", "--write", "--name", "gpu")
    assert written.exit_code == 0, written.err
    source = f"gpu:{folder_in(written)}/run/outputs/loss.txt"
    eventually(lambda: copied(home, source, tmp_path / "loss.txt") == "0.5\n", what="the file of the run")

    assert rented.type("stop", "last", "--now").exit_code == 0
    ended = rented.type("ssh-config", "last")
    assert ended.exit_code == 2
    assert "no longer has a machine" in ended.err
    assert rented.type("launch", "job.yaml", "--provider", "vast", "-y", "-d").exit_code == 0
    again = rented.type("ssh-config", "last", "--write")
    assert "removed gpu" in again.err
    assert [path.stem for path in (home / ".ssh" / "vastrun.d").iterdir()] == [
        f"vastrun-{rented.status()['run']['id']}"
    ]
    assert rented.type("stop", "last", "--now").exit_code == 0


@pytest.mark.slow
def test_vs_code_remote_starts_a_server_by_a_shell_and_reaches_its_port(rented: Terminal, home: Path) -> None:
    assert rented.type("launch", "job.yaml", "--provider", "vast", "-y", "-d").exit_code == 0
    assert rented.type("ssh-config", "last", "--write", "--name", "gpu").exit_code == 0
    proxy_port = free_port()
    # The words of the extension's own log: https://github.com/microsoft/vscode-remote-release/issues/11457
    words = ["ssh", "-v", "-T", "-D", str(proxy_port), "-o", "ConnectTimeout=15"]
    words += ["-F", str(home / ".ssh" / "config"), "gpu", "bash"]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as ssh:
        assert ssh.stdin is not None and ssh.stdout is not None
        # Its script comes on the shell's standard input, which stays open.
        ssh.stdin.write(f"python3 - <<'EOF'\n{SERVER}EOF\n")
        ssh.stdin.flush()
        port = int(ssh.stdout.readline().removeprefix("listening on "))
        assert through_socks(proxy_port, port) == b"reached"
        assert ssh.stdout.readline() == "served\n"
        ssh.stdin.close()
        assert ssh.wait(LONGEST_S) == 0

    # Another machine that answers at this address gets no shell: the host key is the one that was checked.
    block = next((home / ".ssh" / "vastrun.d").iterdir()).read_text()
    keys = next(line.split()[1].strip('"') for line in block.splitlines() if "UserKnownHostsFile" in line)
    other = rented.folder / "other"
    ssh_keys.make_pair(other)
    *comments, line = Path(keys).read_text().splitlines()
    name = line.split()[0]
    Path(keys).write_text("\n".join([*comments, f"{name} {other.with_suffix('.pub').read_text()}"]))
    refused = subprocess.run(words, input="echo in", capture_output=True, text=True, timeout=LONGEST_S)
    assert (refused.returncode, refused.stdout) == (255, "")
    assert "Host key verification failed" in refused.stderr
    assert rented.type("stop", "last", "--now").exit_code == 0


@pytest.mark.slow
def test_a_held_slot_is_reached_in_its_own_folder(rented: Terminal, home: Path, tmp_path: Path) -> None:
    held = rented.type("hold", "job.yaml", "--provider", "vast", "-y", "-d")
    assert held.exit_code == 0, held.err
    holder = rented.status()["run"]["id"]
    assert rented.type("launch", "job.yaml", "--provider", "pool", "-y", "-d").exit_code == 0

    slot = rented.type("ssh-config", "last", "--write", "--name", "slot")
    machine = rented.type("ssh-config", holder, "--write", "--name", "machine")
    assert (slot.exit_code, machine.exit_code) == (0, 0), slot.err + machine.err
    assert folder_in(slot).startswith(f"{folder_in(machine)}/")
    source = f"slot:{folder_in(slot)}/run/outputs/loss.txt"
    eventually(lambda: copied(home, source, tmp_path / "loss.txt") == "0.5\n", what="the file of the slot")

    assert rented.type("stop", "last", "--now").exit_code == 0
    assert rented.type("stop", holder, "--now").exit_code == 0


@pytest.mark.slow
def test_a_run_on_this_computer_is_named_by_its_folder(terminal: Terminal) -> None:
    (terminal.folder / "job.yaml").write_text(JOB)
    assert terminal.type("launch", "job.yaml", "--provider", "local", "-d").exit_code == 0
    done = terminal.type("ssh-config", "last")
    assert done.exit_code == 2
    assert "runs on this computer" in done.err
    assert str(terminal.state) in done.err
    assert terminal.type("stop", "last", "--now").exit_code == 0
