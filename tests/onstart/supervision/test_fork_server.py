"""Copies that a fork server makes: what they get from their watcher, and that none outlives it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.waiting import LONGEST_S, eventually, has_ended
from vastrun.onstart.supervision.fork_server import ForkedProgram

_SERVER = """
import os, sys
from vastrun.onstart.supervision.fork_server import start_server

def program():
    exec(os.environ["PROGRAM"], {"os": os, "sys": sys})
    os._exit(0)

print(start_server(program), flush=True)
sys.stdin.read()
"""
_WATCHER = """
import os, sys
from pathlib import Path
from vastrun.onstart.supervision.fork_server import ForkedProgram

copy = ForkedProgram.request(sys.argv[1], os.environ, Path(sys.argv[2]))
Path(sys.argv[2], "pid").write_text(str(copy.pid))
code = copy.wait()
print("ended with", code, flush=True)
"""
_WAITS = "import time; print('waiting', flush=True); time.sleep(600)"


class Server:
    """A process with a fork server, and watchers of its copies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.watchers: list[subprocess.Popen[str]] = []
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.name = self.process.stdout.readline().strip()

    def watch(self, program: str, **env: str) -> subprocess.Popen[str]:
        """A process that watches a copy which runs the program; stdout is of both."""
        watcher = subprocess.Popen(
            [sys.executable, "-c", _WATCHER, self.name, str(self.folder)],
            env=os.environ | {"PROGRAM": program} | env,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.watchers.append(watcher)
        return watcher

    def copy(self) -> int:
        """The pid of the copy, once it runs."""
        path = self.folder / "pid"
        eventually(lambda: path.exists() and path.read_text() != "")
        return int(path.read_text())

    def close(self) -> None:
        for process in (self.process, *self.watchers):
            process.kill()
            process.communicate()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.close()


def test_a_copy_has_the_environment_the_folder_and_the_output_of_its_watcher(server: Server) -> None:
    program = "print(os.environ['GRID'], os.getcwd(), 'VAST' in os.environ, flush=True)"
    out, _ = server.watch(program, GRID="x" * 100_000).communicate(timeout=LONGEST_S)
    assert out == f"{'x' * 100_000} {server.folder} False\nended with 0\n"


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("os._exit(3)", 3),
        ("os.kill(os.getpid(), 11)", -signal.SIGSEGV),
        ("os.kill(os.getpid(), 15)", -signal.SIGTERM),
    ],
)
def test_the_watcher_is_told_how_its_copy_ended(server: Server, program: str, code: int) -> None:
    out, _ = server.watch(program).communicate(timeout=LONGEST_S)
    assert out == f"ended with {code}\n"


def test_a_copy_that_was_stopped_goes_on_when_it_is_continued(server: Server) -> None:
    """As by `kill -STOP`, or by a debugger that is attached."""
    watcher = server.watch("os.kill(os.getpid(), 19); os._exit(3)")
    copy = server.copy()
    eventually(lambda: has_ended(copy) or psutil.Process(copy).status() == psutil.STATUS_STOPPED)
    os.kill(copy, signal.SIGCONT)
    assert watcher.communicate(timeout=LONGEST_S)[0] == "ended with 3\n"


def test_a_copy_ends_with_its_watcher_and_others_go_on(server: Server) -> None:
    watcher = server.watch(_WAITS)
    copy = server.copy()
    watcher.kill()
    eventually(lambda: has_ended(copy))
    assert server.watch("pass").communicate(timeout=LONGEST_S)[0] == "ended with 0\n"


def test_a_copy_ends_with_the_process_of_the_server(server: Server) -> None:
    watcher = server.watch(_WAITS)
    copy = server.copy()
    server.process.kill()
    eventually(lambda: has_ended(copy))
    assert watcher.communicate(timeout=LONGEST_S)[0].endswith(f"ended with {-signal.SIGKILL}\n")


def test_nobody_answers_at_a_name_that_no_server_has(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="refused"):
        ForkedProgram.request("vastrun-nobody", os.environ, tmp_path)
