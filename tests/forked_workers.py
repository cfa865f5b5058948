"""Workers of pytest-xdist that are forked from one process, which has imported every test module.

Each worker would rewrite a thousand test files and import torch by itself: nine seconds of a core, six times.
So would the server from which the trainer's tests fork their ranks, two seconds each: all workers share it.
"""

import gc
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[1]
_CLIENT = Path(__file__).with_name("forked_worker_client.py")
_SERVE = "import sys; sys.path.insert(0, sys.argv[1]); from tests.forked_workers import serve; exec(serve())"
_BOOTSTRAP = "import sys;exec(eval(sys.stdin.readline()))"
"""What execnet gives to a new interpreter."""


class WorkerSource:
    """A process that imports the tests of `config`, then forks a worker for each that asks."""

    def __init__(self, config: pytest.Config) -> None:
        self._folder = tempfile.mkdtemp(prefix="workers-")  # of this user only: who connects gives the code
        address = str(Path(self._folder, "socket"))
        self.python = shlex.join([sys.executable, "-I", "-S", str(_CLIENT), address])
        """The interpreter of a worker, as a `spec` of execnet names it."""
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen()
            configured = ["-c", str(config.inipath)] if config.inipath else []
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-u", "-c", _SERVE, str(_ROOT), str(listener.fileno())),
                    *[*configured, f"--rootdir={config.rootpath}", *config.args],
                ],
                cwd=config.invocation_params.dir,
                env=os.environ
                | {"PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
            )

    def close(self) -> None:
        """Wait until the workers have ended."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        shutil.rmtree(self._folder)


def are_of_use(config: pytest.Config) -> bool:
    """Whether workers may be forked: coverage counts what a module does when it is imported."""
    return sys.platform == "linux" and not getattr(config.option, "cov_source", None)


class _ModulesOnly:
    """Import modules, and make no test of what they have: the workers do."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(self) -> list[Any]:
        return []


def serve() -> str:
    """Import the tests; return in each worker what it has to execute, and in this process never."""
    number, *arguments = sys.argv[2:]
    # A module that cannot be imported is imported again by each worker, which reports it.
    pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", *arguments], plugins=[_ModulesOnly()])
    if first_draw := sys.modules.get("tests.first_draw"):  # of the hostile tests: others draw little
        first_draw.draw_text()
    if trainer := sys.modules.get("tests.trainer.conftest"):
        trainer.share_fork_server()
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    workers = []
    with socket.socket(fileno=int(number)) as listener:
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            workers.append(os.fork())
            if not workers[-1]:
                _, streams, _, _ = socket.recv_fds(connection, 1, 3)
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                    os.close(stream)
                connection.detach()
                signal.signal(signal.SIGINT, signal.default_int_handler)
                sys.argv[1:] = []
                return _BOOTSTRAP
            connection.close()
    for worker in workers:
        os.waitpid(worker, 0)
    raise SystemExit  # and with it the server of ranks, which ends when nobody is left who could ask it
