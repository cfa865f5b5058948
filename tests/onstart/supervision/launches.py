"""Boxes with a program of the user's own, and the supervisor started in them as the box's scripts would."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.programs import described
from tests.torch_builds import STUB_TORCH
from tests.waiting import LONGEST_S, eventually
from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.outcome import Outcome
from vastrun.contract.records import read_json
from vastrun.onstart.optional_files import number_in
from vastrun.onstart.supervision.processes import environ_of, process_table

_BEATING = """
    import os, signal, sys, time
    from pathlib import Path
    from vastrun.trainer.distributed.rank import Heartbeat

    rank, heart = int(os.environ["RANK"]), Heartbeat.of_this_rank()
    outputs = Path(os.environ["VASTRUN_OUTPUTS"])
"""


class Launched:
    """One supervised run of a program; all its processes carry a mark of their own.

    Its ranks are started by torch's launcher, or by a stand-in that is there at once.
    """

    def __init__(
        self,
        path: Path,
        program: str,
        *,
        beating: bool = True,
        torch: bool = False,
        within: Sequence[str] = (),
        **job: Any,
    ) -> None:
        """`within`: a command that starts the supervisor, such as in a namespace."""
        self.box = path
        self._within = within
        self._mark = str(uuid.uuid4())
        (path / layout.CODE).mkdir(parents=True)
        text = textwrap.dedent(_BEATING if beating else "") + textwrap.dedent(program)
        (path / layout.CODE / "program.py").write_text(text)
        job = job_of(**job)
        if not torch:
            job["env"] = {"PYTHONPATH": str(STUB_TORCH), **job["env"]}
        (path / layout.JOB).write_text(json.dumps(job))
        self._process = self._start()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        return self._process.wait(LONGEST_S)

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def outcome(self) -> Outcome:
        """What the supervisor wrote, after its end."""
        self.wait()
        return Outcome.from_json((self.box / layout.OUTCOME).read_text())

    def log(self) -> list[str]:
        """The merged log without its times."""
        return [line.partition(" ")[2] for line in (self.box / layout.LOG).read_text().splitlines()]

    def until_steps(self, count: int) -> None:
        """Returns when every rank is at that step."""
        eventually(lambda: (number_in(self.box / layout.STATUS, "step") or 0) >= count)

    def processes(self) -> list[int]:
        """Pids of all that this run started and that still lives."""
        return [pid for pid in process_table() if environ_of(pid).get("VASTRUN_INSTANCE") == self._mark]

    def agent(self) -> int:
        """Pid of the launch agent that has started ranks; the kernel may have given its copy a lower one."""
        lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in self.processes()}
        agents = {
            pid for pid, line in lines.items() if b"\0vastrun.onstart.supervision.launch_agent\0" in line
        }
        (agent,) = agents - {int((self.box / layout.SPARE_AGENT).read_text())}
        return agent

    def end(self) -> None:
        for pid in self.processes():
            with suppress(ProcessLookupError):  # it has ended since
                os.kill(pid, signal.SIGKILL)
        self.wait()

    def start_again(self) -> None:
        """Kill all of it, as with its container, and start the supervisor again on the same disk."""
        self.end()
        self._process = self._start()

    def environment(self) -> dict[str, str]:
        """Of the supervisor."""
        root = str(Path(layout.__file__).parents[2])
        return os.environ | {
            "VASTRUN_INSTANCE": self._mark,
            "VASTRUN_BOX": str(self.box),
            "PYTHONPATH": root,
        }

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self._within, sys.executable, "-P", "-m", "vastrun.onstart.supervise"], env=self.environment()
        )


Launcher = Callable[..., Launched]
"""Starts a program with options of its job."""


def job_of(**changes: Any) -> dict[str, Any]:
    """A job that runs the program on two ranks."""
    job = {
        "run_id": "calm-heron-3f1a",
        "name": "program",
        "ranks": 2,
        "gpus": 0,
        "train": None,
        "command": ["python", "program.py"],
        "stall_s": 30,
        "start_s": 30,
        "setup": [],
        "env": {},
        "success": {"exit_code": 0},
        "outputs": [],
    }
    return described(job | changes)


def read_job(**changes: Any) -> Job:
    """The same, as the machine's part reads it."""
    return read_json(Job, json.dumps(job_of(**changes)))
