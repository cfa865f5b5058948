"""Terminal: the installed `vastrun`, typed by a user in a folder of their own, and what it leaves behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil

from tests.documents import hold_to_schema
from tests.pty import Pty, pty
from tests.torch_builds import STUB_TORCH
from tests.waiting import LONGEST_S, eventually

JOBS = Path(__file__).parent / "jobs"
WITH_STUB_TORCH = ("--set", f"env.PYTHONPATH={STUB_TORCH}")
"""A job's program runs without torch."""
VASTRUN = str(Path(sys.executable).with_name("vastrun"))

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Done:
    """A finished command."""

    exit_code: int
    out: str
    err: str
    seconds: float

    def json(self) -> Any:
        return json.loads(self.out)


class Launch:
    """A `vastrun` that is at work."""

    def __init__(self, process: subprocess.Popen[str], err: Path) -> None:
        self.process = process
        self._err = err
        self._began = time.monotonic()

    @property
    def err(self) -> str:
        """What it printed on stderr so far."""
        return self._err.read_text()

    def shows(self, text: str, *, within_s: float = LONGEST_S) -> None:
        """Returns when stderr holds `text`."""

        def look() -> bool:
            assert text in self.err or self.process.poll() is None, self.err
            return text in self.err

        eventually(look, within_s=within_s, what=f"{text!r} on stderr")

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """As `kill -9`."""
        self.process.kill()
        self.process.wait()

    def end(self, *, within_s: float = LONGEST_S) -> Done:
        """The finished command. Fails when it goes on for longer."""
        out, _ = self.process.communicate(timeout=within_s)
        return Done(
            exit_code=self.process.returncode, out=out, err=self.err, seconds=time.monotonic() - self._began
        )


class Terminal:
    """Commands typed in `folder`, with state and outputs below it."""

    program: Sequence[str] = (VASTRUN,)

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder = folder
        self.state = folder / "state"
        keep = ("PATH", "LANG", "HOME", "TMPDIR", "DOCKER_HOST")
        self.variables = {name: os.environ[name] for name in keep if name in os.environ}
        self.variables |= {"XDG_STATE_HOME": str(self.state), "XDG_CONFIG_HOME": str(folder / "config")}
        self.variables |= {"OMP_NUM_THREADS": "1", **variables}
        self._launches: list[Launch] = []

    def start(self, *arguments: str, **variables: str) -> Launch:
        """The command is running; its input is not a terminal."""
        err = self.folder / f"stderr-{len(self._launches)}"
        process = subprocess.Popen(
            [*self.program, *arguments],
            cwd=self.folder,
            env=self.variables | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=err.open("w"),
            text=True,
            start_new_session=True,
        )
        launch = Launch(process, err)
        self._launches.append(launch)
        return launch

    @contextlib.contextmanager
    def sits(self, *arguments: str, columns: int = 80) -> Iterator[Pty]:
        """The command is running, with the keyboard and a screen of that width."""
        with pty([VASTRUN, *arguments], columns=columns, cwd=self.folder, environ=self.variables) as opened:
            yield opened

    @contextlib.contextmanager
    def shell(self) -> Iterator[Pty]:
        """A shell in a window, as a user types commands into it."""
        command = ["bash", "--norc", "-i"]
        with pty(command, columns=200, cwd=self.folder, environ=self.variables) as opened:
            yield opened

    def drivers(self) -> list[psutil.Process]:
        """The background drivers that live."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                command = process.cmdline()
                is_driver = "vastrun.launcher.api.driver_process" in command and "--background" in command
                is_ours = is_driver and process.environ().get("XDG_STATE_HOME") == str(self.state)
                if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def type(self, *arguments: str, within_s: float = LONGEST_S, **variables: str) -> Done:
        """The finished command. What it prints with --json is held to its schema.

        A launch that was left to the background trains then.
        """
        done = self.start(*arguments, **variables).end(within_s=within_s)
        hold_to_schema(arguments, done.out)
        if arguments[0] == "launch" and done.exit_code == 0 and {"-d", "--detach"} & {*arguments}:
            late = ("train", "ended")
            eventually(lambda: [e for e in self.status()["events"] if e["phase"] in late], what="a training")
        return done

    def status(self) -> Any:
        """The newest run, from near."""
        return self.type("status", "last", "--json").json()

    def outcome(self) -> Any:
        """The newest run's outcome.json."""
        return json.loads((self.outputs() / "details" / "outcome.json").read_text())

    def outputs(self) -> Path:
        """The newest run's folder."""
        return max((self.folder / "runs").iterdir(), key=lambda folder: folder.stat().st_mtime)

    def leftovers(self) -> list[str]:
        """Processes of any box of this terminal that are still alive, and boxes that are still there."""
        found = []
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended since it was found
                found.append(f"{process.pid} {' '.join(process.cmdline())}")
        boxes = self.state / "vastrun" / "boxes"
        return found + [str(path) for path in boxes.glob("*/run")]

    def clean(self) -> None:
        """Nothing of this terminal goes on."""
        for launch in self._launches:
            with contextlib.suppress(ProcessLookupError):
                launch.process.kill()
            launch.process.wait()
        for process in (*self.drivers(), *self._processes()):
            with contextlib.suppress(psutil.Error):
                process.kill()

    def kill_drivers(self) -> None:
        """As `kill -9`, of every background driver."""
        for driver in self.drivers():
            with contextlib.suppress(psutil.NoSuchProcess):
                driver.kill()
        eventually(lambda: not self.drivers(), what="the end of the drivers")

    def _processes(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                box = process.environ().get("VASTRUN_BOX", "")
                if box.startswith(str(self.state)) and process.status() != psutil.STATUS_ZOMBIE:
                    yield process
