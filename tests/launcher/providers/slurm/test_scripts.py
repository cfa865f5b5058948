"""What the scripts of a Slurm job do without Slurm: their answers, and the port where nodes meet."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import vastrun.launcher.providers.slurm
from tests.waiting import LONGEST_S, eventually
from vastrun.launcher.providers.slurm.batch import ask_argv, script


@pytest.fixture
def server(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Serves a box, whose lease is none."""
    (tmp_path / "lease.sh").write_text("exit 0\n")
    (tmp_path / ".server.sh").write_text(script("server"))
    environ = {**os.environ, "VASTRUN_BOX": str(tmp_path)}
    server = subprocess.Popen(
        ["bash", ".server.sh"], cwd=tmp_path, env=environ, stdin=subprocess.DEVNULL, start_new_session=True
    )
    eventually(lambda: (tmp_path / ".asks" / "order").exists(), what="a server")
    yield server
    server.kill()
    server.wait()


def query(box: Path, command: str) -> subprocess.Popen[str]:
    words = ask_argv(15.0, 3600.0, command)
    return subprocess.Popen(words, cwd=box, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_command_ends_with_what_it_printed(server: subprocess.Popen[bytes], tmp_path: Path) -> None:
    assert query(tmp_path, "echo here; exit 3").communicate(timeout=LONGEST_S)[0] == "ended 3\nhere\n"


def test_who_waits_for_a_command_hears_soon_that_the_job_was_killed(
    server: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    waiting = query(tmp_path, "echo $BASHPID >pid; exec sleep 1000")
    eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), what="the command")
    server.kill()
    try:
        assert waiting.communicate(timeout=LONGEST_S)[0] == "silent\n"
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_a_disk_without_shared_locks_ends_no_command(server: subprocess.Popen[bytes], tmp_path: Path) -> None:
    (tmp_path / ".asks" / "served").unlink()  # the server holds its lock, and nobody else sees it
    (tmp_path / ".asks" / "served").touch()
    assert query(tmp_path, "sleep 3; echo here").communicate(timeout=LONGEST_S)[0] == "ended 0\nhere\n"


SCRIPT = Path(vastrun.launcher.providers.slurm.__file__).with_name("scripts") / "job.sh"
PORTS = 3
"""Of one run: the rendezvous, the supervisors' and the ranks' own."""
FIRST_EPHEMERAL = 32_768
"""From here on Linux hands ports out to whoever connects."""
CHOOSE = r"""
eval "$(sed -n '/^is_free()/p; /^choose_rendezvous()/,/^}/p' "$1")"
instances=(first) folder=$2
shift 2
for seed; do RANDOM=$seed; choose_rendezvous; cat "$folder/first/.rendezvous"; done
"""


def chosen(folder: Path, *seeds: int) -> list[int]:
    """The port for each seed of bash's random numbers."""
    (folder / "first").mkdir(exist_ok=True)
    words = ["bash", "-c", CHOOSE, "bash", str(SCRIPT), str(folder), *map(str, seeds)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    return [int(line.rpartition(":")[2]) for line in done.stdout.split()]


def test_no_port_of_a_run_is_one_that_the_kernel_hands_out_or_that_of_another_run(tmp_path: Path) -> None:
    ports = chosen(tmp_path, *range(1, 101))
    assert len(set(ports)) > 50
    assert all(1024 <= port <= FIRST_EPHEMERAL - PORTS for port in ports)
    assert len({port % PORTS for port in ports}) == 1


def test_each_port_of_a_run_is_free(tmp_path: Path) -> None:
    (port,) = chosen(tmp_path, 7)
    for number in range(PORTS):
        with socket.create_server(("127.0.0.1", port + number)):
            assert chosen(tmp_path, 7) != [port], number
    assert chosen(tmp_path, 7) == [port]
