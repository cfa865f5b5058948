"""What a job answers with, on this computer and without Slurm: who asks hears of its end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import LONGEST_S, eventually
from vastrun.launcher.providers.slurm.batch import _script, ask_argv

LIMIT_S = 3600.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Serves a box, whose lease is none."""
    (tmp_path / "lease.sh").write_text("exit 0\n")
    (tmp_path / ".server.sh").write_text(_script("server"))
    environ = {**os.environ, "VASTRUN_BOX": str(tmp_path)}
    server = subprocess.Popen(
        ["bash", ".server.sh"], cwd=tmp_path, env=environ, stdin=subprocess.DEVNULL, start_new_session=True
    )
    eventually(lambda: (tmp_path / ".asks" / "order").exists(), what="a server")
    yield server
    server.kill()
    server.wait()


def query(box: Path, command: str) -> subprocess.Popen[str]:
    words = ask_argv(15.0, LIMIT_S, command)
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


def test_a_disk_on_which_locks_are_not_shared_ends_no_command(
    server: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    (tmp_path / ".asks" / "served").unlink()  # the server holds its lock, and nobody else sees it
    (tmp_path / ".asks" / "served").touch()
    assert query(tmp_path, "sleep 3; echo here").communicate(timeout=LONGEST_S)[0] == "ended 0\nhere\n"
